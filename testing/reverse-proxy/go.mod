module reverse-proxy

go 1.26
