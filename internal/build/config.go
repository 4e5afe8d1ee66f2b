package build

import (
	"cmp"
	"encoding/json"
	"fmt"

	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// defaultName is the application's database and role if the spec names none.
const defaultName = "app"

// configMap has the agents' configuration.
func configMap(in Input) Object {
	return coreac.ConfigMap(naming.ConfigMap(in.Cluster.Name), in.Cluster.Namespace).
		WithLabels(in.labels()).
		WithOwnerReferences(ownerReference(in.Cluster)).
		WithData(map[string]string{naming.FileConfig: configJSON(in)})
}

// agentConfig is what the agents are told.
func agentConfig(in Input) agentapi.Config {
	c := in.Cluster
	database, owner := appNames(c)
	config := agentapi.Config{
		Cluster:          c.Name,
		Namespace:        c.Namespace,
		Generation:       c.Generation,
		Version:          in.live(),
		SystemIdentifier: in.SystemIdentifier,
		Bootstrap:        in.Bootstrap,
		Database:         database,
		Owner:            owner,
		HBA:              c.Spec.PostgreSQL.PgHBA,
		Lease:            leaseOf(c),
		Availability:     availability(c, len(in.Members)),
		Fenced:           fenced(c),
		ForceFailover:    c.Annotations[naming.AnnotationForceFailover],
		Upgrade:          in.Upgrade,
		InPlace:          in.InPlace,
		Floor:            in.Floor,
	}
	for _, m := range in.Members {
		member := agentapi.Member{Name: m.Name, Host: naming.InstanceHost(c.Name, c.Namespace, m.Name)}
		if version := in.version(m); version != in.live() {
			member.Version = version
		}
		config.Members = append(config.Members, member)
	}
	config.Parameters = parameters(c)
	config.Backup, config.Recovery = backupConfig(c), recovery(c)
	return config
}

// parameters are the user's. Those with which PostgreSQL could not start within its memory limit are left out, as if they were not
// set: the webhook refuses them, but may have been out.
func parameters(c *v1.PostgresCluster) map[string]string {
	if len(c.Spec.PostgreSQL.Parameters) == 0 {
		return nil
	}
	all := make(map[string]string, len(c.Spec.PostgreSQL.Parameters))
	for name, value := range c.Spec.PostgreSQL.Parameters {
		all[name] = string(value)
	}
	if c.Spec.Resources == nil || c.Spec.Resources.Limits.Memory().IsZero() {
		return all
	}
	if limit := c.Spec.Resources.Limits.Memory().Value(); postgres.SharedMemory(all, limit) >= limit {
		for _, name := range postgres.MemoryParameters {
			delete(all, name)
		}
	}
	return all
}

// configJSON is the agents' configuration as it is mounted.
func configJSON(in Input) string {
	text, err := json.MarshalIndent(agentConfig(in), "", "  ")
	if err != nil {
		panic(fmt.Sprintf("build: agentapi.Config cannot be written as JSON: %v", err)) // it has only strings and numbers
	}
	return string(text) + "\n"
}

// appNames are the application's database and role.
func appNames(c *v1.PostgresCluster) (database, owner string) {
	database, owner = defaultName, defaultName
	if b := c.Spec.Bootstrap; b != nil && b.InitDB != nil {
		if b.InitDB.Database != "" {
			database = b.InitDB.Database
		}
		if b.InitDB.Owner != "" {
			owner = b.InitDB.Owner
		}
	}
	if b := c.Spec.Bootstrap; b != nil && b.Recovery != nil {
		database, owner = cmp.Or(b.Recovery.Database, database), cmp.Or(b.Recovery.Owner, owner)
	}
	return database, owner
}

// configHash is the hash of everything that a Pod mounts as a file.
func configHash(in Input) string {
	secrets := in.Credentials
	return agentapi.Files{
		Config:            []byte(configJSON(in)),
		SuperuserPassword: []byte(secrets.SuperuserPassword),
		AppPassword:       []byte(secrets.AppPassword),
		CACert:            secrets.CA.Cert,
		ServerCert:        secrets.Server.Cert,
		ServerKey:         secrets.Server.Key,
		ReplicationCert:   secrets.Replication.Cert,
		ReplicationKey:    secrets.Replication.Key,
	}.Hash()
}

// hostHash is the same for a repository host, which mounts less.
func hostHash(in Input) string {
	secrets := in.Credentials
	return agentapi.Files{
		Config: []byte(configJSON(in)), CACert: secrets.CA.Cert, ServerCert: secrets.Server.Cert, ServerKey: secrets.Server.Key,
	}.Hash()
}
