// One peer of the interop tests: go-lumber's client or its server, plain or with TLS.
//
//	-addr HOST:PORT    send the lines of standard input as events; say how many were acknowledged
//	-listen HOST:PORT  receive; print the port, then each event as a line
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"os"
)

var (
	ca   = flag.String("ca", "", "PEM file of the authority that the peer's certificate is checked by; the client then speaks TLS")
	cert = flag.String("cert", "", "PEM file of the own certificate; the server then speaks TLS")
	key  = flag.String("key", "", "PEM file of its key")
)

func main() {
	addr := flag.String("addr", "", "where to send to")
	listen := flag.String("listen", "", "where to receive")
	batch := flag.Int("batch", 2048, "events in a window")
	inflight := flag.Int("async", 0, "windows in flight of the async client; 0: the sync client")
	level := flag.Int("level", 3, "zlib level; 0: plain frames")
	flag.Parse()
	if *listen != "" {
		log.Fatal(serve(*listen))
	}
	acked, err := send(*addr, *batch, *inflight, *level)
	fmt.Println(acked)
	if err != nil {
		log.Fatal(err)
	}
}

// settings are those of TLS, nil where no option asks for it.
func settings() (*tls.Config, error) {
	if *ca == "" && *cert == "" {
		return nil, nil
	}
	config := &tls.Config{ServerName: "localhost"}
	if *ca != "" {
		pem, err := os.ReadFile(*ca)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		config.RootCAs, config.ClientCAs = pool, pool
	}
	if *cert != "" {
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
