package build

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/pgsteward/pgsteward/internal/credential"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// caSecret has the cluster's certificate authority. Only the operator uses its key.
func caSecret(in Input) Object {
	return tlsSecret(in, naming.CASecret(in.Cluster.Name), in.Credentials.CA)
}

// serverSecret has the certificate that PostgreSQL and the agents serve with.
func serverSecret(in Input) Object {
	return tlsSecret(in, naming.ServerSecret(in.Cluster.Name), in.Credentials.Server)
}

// replicationSecret has the standbys' client certificate.
func replicationSecret(in Input) Object {
	return tlsSecret(in, naming.ReplicationSecret(in.Cluster.Name), in.Credentials.Replication)
}

func tlsSecret(in Input, name string, pair credential.KeyPair) Object {
	return coreac.Secret(name, in.Cluster.Namespace).
		WithLabels(in.labels()).
		WithOwnerReferences(ownerReference(in.Cluster)).
		WithType(corev1.SecretTypeTLS).
		WithData(map[string][]byte{
			naming.KeyTLSCert: pair.Cert,
			naming.KeyTLSKey:  pair.Key,
			naming.KeyCACert:  in.Credentials.CA.Cert,
		})
}

// superuserSecret is the connection of the superuser.
func superuserSecret(in Input) Object {
	return connectionSecret(in, naming.SuperuserSecret(in.Cluster.Name), naming.Superuser, naming.Superuser, in.Credentials.SuperuserPassword)
}

// appSecret is the connection of the application.
func appSecret(in Input) Object {
	database, owner := appNames(in.Cluster)
	return connectionSecret(in, naming.AppSecret(in.Cluster.Name), database, owner, in.Credentials.AppPassword)
}

// connectionSecret has everything that a client needs, in the forms that clients know.
func connectionSecret(in Input, name, database, user, password string) Object {
	c := in.Cluster
	host := naming.ServiceHost(naming.ServiceRW(c.Name), c.Namespace)
	port := strconv.Itoa(naming.PortPostgres)
	address := url.URL{
		Scheme: "postgresql", User: url.UserPassword(user, password), Host: net.JoinHostPort(host, port), Path: "/" + database,
		RawQuery: "sslmode=require",
	}
	jdbc := url.URL{
		Scheme: "jdbc:postgresql", Host: net.JoinHostPort(host, port), Path: "/" + database,
		RawQuery: url.Values{"user": {user}, "password": {password}, "sslmode": {"require"}}.Encode(),
	}
	return coreac.Secret(name, c.Namespace).
		WithLabels(in.labels()).
		WithOwnerReferences(ownerReference(c)).
		WithType(corev1.SecretTypeOpaque).
		WithData(map[string][]byte{
			naming.KeyUser:     []byte(user),
			naming.KeyPassword: []byte(password),
			naming.KeyDBName:   []byte(database),
			naming.KeyHost:     []byte(host),
			naming.KeyPort:     []byte(port),
			naming.KeyURI:      []byte(address.String()),
			naming.KeyJDBCURI:  []byte(jdbc.String()),
			naming.KeyPgpass:   []byte(pgpassLine(host, port, database, user, password)),
		})
}

// pgpassLine is a line of a password file (https://www.postgresql.org/docs/current/libpq-pgpass.html).
func pgpassLine(fields ...string) string {
	escape := strings.NewReplacer(`\`, `\\`, `:`, `\:`)
	for i := range fields {
		fields[i] = escape.Replace(fields[i])
	}
	return fmt.Sprintln(strings.Join(fields, ":"))
}
