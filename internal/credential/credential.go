package credential

import (
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"time"

	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// caValidity and leafValidity are for how long certificates are good. They are renewed when a third of it is left, so that
	// every Pod has months or weeks to see the new one.
	caValidity   = 10 * 365 * 24 * time.Hour
	leafValidity = 90 * 24 * time.Hour
	// clockSkew is by how much the clocks of the nodes may differ.
	clockSkew = 5 * time.Minute
	// passwordBytes of randomness: 192 bits.
	passwordBytes = 24
)

// Set is everything secret of a cluster. Empty parts are missing.
type Set struct {
	SuperuserPassword string
	AppPassword       string
	CA                KeyPair
	Server            KeyPair
	Replication       KeyPair
}

// KeyPair is a certificate and its private key, both as PEM.
type KeyPair struct{ Cert, Key []byte }

// Cluster names what the certificates are for.
type Cluster struct {
	Name, Namespace string
	// Repository says that there is a repository host.
	Repository bool
}

// Complete returns have with all that was missing, broken or about to expire made anew, and when to look again at the latest.
func Complete(have Set, c Cluster, now time.Time, random io.Reader) (Set, time.Time, error) {
	var err error
	if have.SuperuserPassword, err = keepPassword(have.SuperuserPassword, random); err != nil {
		return Set{}, time.Time{}, err
	}
	if have.AppPassword, err = keepPassword(have.AppPassword, random); err != nil {
		return Set{}, time.Time{}, err
	}
	ca, err := keepCA(have.CA, c, now, random)
	if err != nil {
		return Set{}, time.Time{}, err
	}
	have.CA = ca.pair
	server, err := ca.keepLeaf(have.Server, serverCertificate(c), now, random)
	if err != nil {
		return Set{}, time.Time{}, err
	}
	have.Server = server.pair
	replication, err := ca.keepLeaf(have.Replication, leaf{subject: pkix.Name{CommonName: naming.ReplicationUser}}, now, random)
	if err != nil {
		return Set{}, time.Time{}, err
	}
	have.Replication = replication.pair
	next := ca.renewAt()
	for _, a := range []authority{server, replication} {
		if a.renewAt().Before(next) {
			next = a.renewAt()
		}
	}
	return have, next, nil
}

// Operator makes a client certificate by which the cluster's agents know the operator. It is never stored.
func Operator(ca KeyPair, now time.Time, random io.Reader) (KeyPair, error) {
	parsed, err := parse(ca)
	if err != nil {
		return KeyPair{}, fmt.Errorf("certificate authority: %w", err)
	}
	made, err := parsed.issue(leaf{subject: pkix.Name{CommonName: naming.OperatorUser}}, now, random)
	return made.pair, err
}

// serverCertificate is for every name by which clients, standbys and the operator call an instance.
func serverCertificate(c Cluster) leaf {
	names := []string{"localhost"}
	services := []string{naming.ServiceRW(c.Name), naming.ServiceRO(c.Name), naming.ServiceR(c.Name), "*." + naming.ServiceInstances(c.Name)}
	if c.Repository {
		services = append(services, naming.Repository(c.Name))
	}
	for _, service := range services {
		host := naming.ServiceHost(service, c.Namespace)
		names = append(names, service, service+"."+c.Namespace, host, host+".cluster.local")
	}
	return leaf{subject: pkix.Name{CommonName: naming.ServerCertificate(c.Name)}, names: names}
}

func keepPassword(have string, random io.Reader) (string, error) {
	if have != "" {
		return have, nil
	}
	b := make([]byte, passwordBytes)
	if _, err := io.ReadFull(random, b); err != nil {
		return "", fmt.Errorf("password: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}
