// Package pki makes the keys and certificates of one cluster, which is trusted by nobody else.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime is longer than anyone leaves a test cluster up.
const lifetime = 365 * 24 * time.Hour

// Write makes ca.crt, server.crt, server.key, and sa.key with sa.pub, by which service accounts are known.
func Write(dir string) error {
	root, rootKey, err := authority()
	if err != nil {
		return err
	}
	server, serverKey, err := serving(root, rootKey)
	if err != nil {
		return err
	}
	accounts, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	accountsPublic, err := x509.MarshalPKIXPublicKey(&accounts.PublicKey)
	if err != nil {
		return err
	}
	for _, one := range []struct {
		name, kind string
		bytes      []byte
	}{
		{"ca.crt", "CERTIFICATE", root.Raw},
		{"server.crt", "CERTIFICATE", server},
		{"sa.pub", "PUBLIC KEY", accountsPublic},
	} {
		if err := write(dir, one.name, one.kind, one.bytes); err != nil {
			return err
		}
	}
	if err := writeKey(dir, "server.key", serverKey); err != nil {
		return err
	}
	return writeKey(dir, "sa.key", accounts)
}

// authority signs the server's certificate; its key is never written down.
func authority() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := certificate("krane test cluster")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	root, err := x509.ParseCertificate(raw)
	return root, key, err
}

func serving(root *x509.Certificate, rootKey *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := certificate("kube-apiserver")
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	raw, err := x509.CreateCertificate(rand.Reader, template, root, key.Public(), rootKey)
	return raw, key, err
}

func certificate(name string) *x509.Certificate {
	// A clock that was just set back must not make the cluster too young to be trusted.
	begin := time.Now().Add(-time.Hour)
	serial := new(big.Int).SetBytes([]byte(rand.Text()[:16]))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: begin, NotAfter: begin.Add(lifetime),
	}
}

func writeKey(dir, name string, key crypto.PrivateKey) error {
	bytes, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return write(dir, name, "PRIVATE KEY", bytes)
}

func write(dir, name, kind string, bytes []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
	return os.WriteFile(filepath.Join(dir, name), text, 0o600)
}
