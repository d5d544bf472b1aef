package main

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"github.com/elastic/go-lumber/server"
)

// serve prints `listening PORT`, then each event: JSON text as base64, key-value events as a JSON object.
// A batch is acknowledged once its events are printed, by their count, as go-lumber does.
func serve(addr string) error {
	config, err := settings()
	if err != nil {
		return err
	}
	keep := func(text []byte, into interface{}) error {
		*into.(*interface{}) = append([]byte{}, text...)
		return nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if config != nil {
		if *ca != "" {
			config.ClientAuth = tls.RequireAndVerifyClientCert
		}
		listener = tls.NewListener(listener, config)
	}
	s, err := server.NewWithListener(listener, server.V1(true), server.V2(true), server.JSONDecoder(keep))
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintln(out, "listening", port)
	out.Flush()
	for batch := range s.ReceiveChan() {
		for _, event := range batch.Events {
			if text, ok := event.([]byte); ok {
				fmt.Fprintln(out, base64.StdEncoding.EncodeToString(text))
			} else if err := json.NewEncoder(out).Encode(event); err != nil {
				return err
			}
		}
		out.Flush()
		batch.ACK()
	}
	return nil
}
