// go-lumber's server, counting, and its client: the peers of the figures in docs/performance.md.
// As shipped the server decodes each event into a map; with -bytes its decoder option keeps the bytes.
// With -send HOST:PORT it is the client: it reads events from standard input, one on each line, and sends them again and
// again as they are, in windows of 2,048 at zlib level 3, two in flight.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/elastic/go-lumber/client/v2"
	"github.com/elastic/go-lumber/server"
)

func main() {
	keep := flag.Bool("bytes", false, "keep each event's bytes instead of decoding them")
	to := flag.String("send", "", "send to this address instead of receiving")
	seconds := flag.Float64("seconds", 10, "how long to send")
	flag.Parse()
	if *to != "" {
		send(*to, *seconds)
		return
	}
	// Its own 30 s are too short for a thousand connections' windows.
	options := []server.Option{server.V1(true), server.V2(true), server.Timeout(5 * time.Minute)}
	if *keep {
		options = append(options, server.JSONDecoder(func(from []byte, to interface{}) error {
			*to.(*interface{}) = append([]byte{}, from...)
			return nil
		}))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("{\"event\":\"listening\",\"urls\":[\"lumberjack://%s\"]}\n", listener.Addr())
	receive, err := server.NewWithListener(listener, options...)
	if err != nil {
		log.Fatal(err)
	}
	var events uint64
	go func() {
		for range time.Tick(time.Second) {
			fmt.Printf("{\"event\":\"stats\",\"events\":%d}\n", atomic.LoadUint64(&events))
		}
	}()
	for batch := range receive.ReceiveChan() {
		atomic.AddUint64(&events, uint64(len(batch.Events)))
		batch.ACK()
	}
}

func send(address string, seconds float64) {
	ready := func(event interface{}) ([]byte, error) { return event.([]byte), nil }
	options := []client.Option{client.JSONEncoder(ready), client.CompressionLevel(3), client.Timeout(30 * time.Second)}
	to, err := client.AsyncDial(address, 2, options...)
	if err != nil {
		log.Fatal(err)
	}
	batch := []interface{}{}
	windows := [][]interface{}{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		batch = append(batch, append([]byte{}, lines.Bytes()...))
		if len(batch) == 2048 {
			windows, batch = append(windows, batch), []interface{}{}
		}
	}
	if len(windows) == 0 {
		log.Fatal("no whole window on standard input")
	}
	var pending sync.WaitGroup
	var acked uint64
	begun := time.Now()
	for at := 0; time.Since(begun).Seconds() < seconds; at++ {
		pending.Add(1)
		err := to.Send(func(count uint32, err error) {
			if err != nil {
				log.Fatal(err)
			}
			atomic.AddUint64(&acked, uint64(count))
			pending.Done()
		}, windows[at%len(windows)])
		if err != nil {
			log.Fatal(err)
		}
	}
	pending.Wait()
	fmt.Printf("{\"event\":\"done\",\"events\":%d,\"seconds\":%f}\n", acked, time.Since(begun).Seconds())
}
