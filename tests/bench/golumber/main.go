// go-lumber's server, counting: the peer of the figures in docs/performance.md.
// As shipped it decodes each event into a map; with -bytes its decoder option keeps the bytes.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"sync/atomic"
	"time"

	"github.com/elastic/go-lumber/server"
)

func main() {
	keep := flag.Bool("bytes", false, "keep each event's bytes instead of decoding them")
	flag.Parse()
	options := []server.Option{server.V1(true), server.V2(true)}
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
