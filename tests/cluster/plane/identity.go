package plane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	clientcmd "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/tools/clientcmd/api/latest"

	"k8s.io/apimachinery/pkg/runtime"
)

// user is an identity of the API server's static token file.
type user struct {
	name, group string
}

// Who talks to the API server beside Muster, which has the ServiceAccount of its
// own manifests. What is not under test gets all rights.
var users = []user{
	{name: "admin", group: "system:masters"},
	{name: "karpenter", group: "system:masters"},
	{name: "kwok", group: "system:masters"},
	{name: "kueue", group: "system:masters"},
	{name: "scheduler-plugins", group: "system:masters"},
	{name: "jobset", group: "system:masters"},
	{name: "trainer", group: "system:masters"},
	{name: "training-operator", group: "system:masters"},
	{name: "mpi-operator", group: "system:masters"},
	{name: "kuberay", group: "system:masters"},
	{name: "system:kube-controller-manager", group: "system:masters"},
	{name: "system:kube-scheduler", group: "system:authenticated"},
}

// frontProxyName is what the API server is called where it hands requests on.
const frontProxyName = "front-proxy-client"

// identities are the files that make the API server's callers and the server
// itself known to each other.
type identities struct {
	folder    string
	authority []byte            // PEM
	tokens    map[string]string // by user
}

func (i *identities) path(name string) string { return filepath.Join(i.folder, name) }

func createIdentities(folder string) (*identities, error) {
	i := &identities{folder: folder, tokens: map[string]string{}}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	authority, err := NewAuthority("muster test cluster")
	if err != nil {
		return nil, err
	}
	i.authority = authority.PEM()
	if err := authority.WriteServing(i.path("server"), "kube-apiserver", 24*time.Hour); err != nil {
		return nil, err
	}

	// The API server shows by this who it is, where it hands requests on.
	front, err := NewAuthority("front proxy")
	if err != nil {
		return nil, err
	}
	if err := front.writeClient(i.path("front-proxy"), frontProxyName, 24*time.Hour); err != nil {
		return nil, err
	}

	accountKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	accountPEM := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(accountKey)})

	tokens := ""
	for _, u := range users {
		random := make([]byte, 16)
		if _, err := rand.Read(random); err != nil {
			return nil, err
		}
		i.tokens[u.name] = hex.EncodeToString(random)
		tokens += fmt.Sprintf("%s,%s,%s,%q\n", i.tokens[u.name], u.name, u.name, u.group)
	}
	for name, content := range map[string][]byte{
		"ca.crt":              i.authority,
		"front-proxy-ca.crt":  front.PEM(),
		"service-account.key": accountPEM,
		"tokens.csv":          []byte(tokens),
	} {
		if err := os.WriteFile(i.path(name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// Authority is a certificate authority.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes a certificate authority that nothing else trusts.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(raw)
	return &Authority{certificate, key}, err
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// WriteServing writes PATH.crt and PATH.key for a server on loopback, also one
// behind the Service of Muster's webhook.
func (a *Authority) WriteServing(path, name string, validity time.Duration) error {
	return a.write(path, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		NotAfter:    time.Now().Add(validity),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:    []string{"localhost", webhookService + "." + deploymentNamespace + ".svc"},
	})
}

// writeClient writes PATH.crt and PATH.key for a client of that name.
func (a *Authority) writeClient(path, name string, validity time.Duration) error {
	return a.write(path, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		NotAfter:    time.Now().Add(validity),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *Authority) write(path string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.SerialNumber = big.NewInt(2)
	template.NotBefore = time.Now().Add(-time.Hour)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return err
	}
	keyRaw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyRaw}), 0o600)
}

// writeKubeconfig writes a kubeconfig of one user with a token.
func (i *identities) writeKubeconfig(path, server, name, token string) error {
	config := clientcmd.NewConfig()
	config.Clusters["test"] = &clientcmd.Cluster{Server: server, CertificateAuthorityData: i.authority}
	config.AuthInfos[name] = &clientcmd.AuthInfo{Token: token}
	config.Contexts["test"] = &clientcmd.Context{Cluster: "test", AuthInfo: name}
	config.CurrentContext = "test"
	content, err := runtime.Encode(latest.Codec, config)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}
