// Command h2spec holds a server of HTTP/2 to every case of h2spec, and writes what came of each as JUnit's XML.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"
)

func main() {
	host := flag.String("host", "localhost", "the server's name, which is also the authority of every request")
	port := flag.Int("port", 0, "the server's port, which speaks HTTP/2 from its first byte")
	report := flag.String("report", "", "where the results are written")
	timeout := flag.Duration("timeout", 5*time.Second, "what one answer may take")
	flag.Parse()
	passed, err := h2spec.Run(&config.Config{
		Host:         *host,
		Port:         *port,
		Path:         "/",
		Timeout:      *timeout,
		MaxHeaderLen: 4000,
		JUnitReport:  *report,
		Strict:       true,
		Sections:     flag.Args(),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !passed {
		os.Exit(1)
	}
}
