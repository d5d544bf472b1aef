package main

import (
	"bufio"
	"crypto/tls"
	"net"
	"os"
	"time"

	v2 "github.com/elastic/go-lumber/client/v2"
)

// How long an acknowledgement may take: longer than the slowest disk of a test machine.
const patience = 60 * time.Second

func send(addr string, batch, inflight, level int) (acked int, err error) {
	config, err := settings()
	if err != nil {
		return 0, err
	}
	dial := func(network, address string) (net.Conn, error) {
		if config != nil {
			return tls.Dial(network, address, config)
		}
		return net.DialTimeout(network, address, patience)
	}
	raw := func(event interface{}) ([]byte, error) { return event.([]byte), nil }
	options := []v2.Option{v2.JSONEncoder(raw), v2.CompressionLevel(level), v2.Timeout(patience)}
	batches := read(batch)
	if inflight == 0 {
		return sendSync(dial, addr, batches, options)
	}
	return sendAsync(dial, addr, inflight, batches, options)
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

type dialer = func(network, address string) (net.Conn, error)

func sendSync(dial dialer, addr string, batches [][]interface{}, options []v2.Option) (acked int, err error) {
	client, err := v2.SyncDialWith(dial, addr, options...)
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

func sendAsync(dial dialer, addr string, inflight int, batches [][]interface{}, options []v2.Option) (acked int, err error) {
	client, err := v2.AsyncDialWith(dial, addr, inflight, options...)
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
