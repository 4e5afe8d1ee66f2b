package backrest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// reachBound is how long the repository may take to accept a connection.
const reachBound = 10 * time.Second

// Remote is the address of the repository; empty if it is on this host.
func (s Settings) Remote() string {
	switch s.Repository.Kind {
	case agentapi.RepositoryHost:
		return net.JoinHostPort(s.Repository.Host, strconv.Itoa(s.ServerPort))
	case agentapi.RepositoryFolder:
		return ""
	}
	endpoint, err := s.endpoint()
	if err != nil {
		return "" // the configuration could not be written either
	}
	host := endpoint.Hostname()
	if s.Repository.Kind == agentapi.RepositoryAzure && !s.Repository.PathStyle {
		host = s.Repository.Account + "." + host // the service itself need not have an address
	}
	return net.JoinHostPort(host, portOf(endpoint))
}

// portOf is the port of a bucket's endpoint.
func portOf(endpoint *url.URL) string {
	const https = "443"
	if port := endpoint.Port(); port != "" {
		return port
	}
	return https
}

// reach says why there is no connection to the address. pgBackRest would say so too, after many tries of its own: where packets get no
// answer at all that takes minutes.
func reach(ctx context.Context, remote string) error {
	if remote == "" {
		return nil
	}
	dialer := net.Dialer{Timeout: reachBound}
	connection, err := dialer.DialContext(ctx, "tcp", remote)
	if err != nil {
		return fmt.Errorf("the repository at %s is out of reach: %w", remote, err)
	}
	_ = connection.Close()
	return nil
}
