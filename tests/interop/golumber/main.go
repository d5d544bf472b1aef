// Sends the lines of standard input as events with go-lumber's sync or async client, and says how many were acknowledged.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	v2 "github.com/elastic/go-lumber/client/v2"
)

func main() {
	addr := flag.String("addr", "", "host:port")
	batch := flag.Int("batch", 2048, "events in a window")
	inflight := flag.Int("async", 0, "windows in flight of the async client; 0: the sync client")
	level := flag.Int("level", 3, "zlib level; 0: plain frames")
	flag.Parse()

	raw := func(event interface{}) ([]byte, error) { return event.([]byte), nil }
	options := []v2.Option{v2.JSONEncoder(raw), v2.CompressionLevel(*level), v2.Timeout(10 * time.Second)}
	batches := read(*batch)
	acked, err := 0, error(nil)
	if *inflight == 0 {
		acked, err = sendSync(*addr, batches, options)
	} else {
		acked, err = sendAsync(*addr, *inflight, batches, options)
	}
	fmt.Println(acked)
	if err != nil {
		log.Fatal(err)
	}
}

func read(size int) (batches [][]interface{}) {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 32<<20)
	batch := []interface{}{}
	for lines.Scan() {
		batch = append(batch, append([]byte{}, lines.Bytes()...))
		if len(batch) == size {
			batches, batch = append(batches, batch), []interface{}{}
		}
	}
	if len(batch) > 0 {
		batches = append(batches, batch)
	}
	return batches
}

func sendSync(addr string, batches [][]interface{}, options []v2.Option) (acked int, err error) {
	client, err := v2.SyncDial(addr, options...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	for _, batch := range batches {
		n, err := client.Send(batch)
		acked += n
		if err != nil {
			return acked, err
		}
	}
	return acked, nil
}

func sendAsync(addr string, inflight int, batches [][]interface{}, options []v2.Option) (acked int, err error) {
	client, err := v2.AsyncDial(addr, inflight, options...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	type answer struct {
		n   int
		err error
	}
	answers := make(chan answer, len(batches))
	for _, batch := range batches {
		if err := client.Send(func(seq uint32, err error) { answers <- answer{int(seq), err} }, batch); err != nil {
			return acked, err
		}
	}
	for range batches {
		each := <-answers
		acked += each.n
		if each.err != nil {
			return acked, each.err
		}
	}
	return acked, nil
}
