// Command reverse-proxy is what a sentinel is measured against: Go's own ReverseProxy, as anybody would set it up.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where requests come in, as HTTP/1 or HTTP/2 without TLS")
	instance := flag.String("instance", "", "the address of the one instance")
	flag.Parse()
	target, err := url.Parse("http://" + *instance)
	if err != nil {
		log.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.MaxIdleConns = 1024
	transport.MaxIdleConnsPerHost = 1024
	transport.DisableCompression = true
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(target)
			request.SetXForwarded()
			request.Out.Host = request.In.Host
		},
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: proxy, Protocols: &protocols}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(os.Stdout, listener.Addr())
	log.Fatal(server.Serve(listener))
}
