// Package observe is the only reader: it reads what there is of a PostgresCluster, from the cache that watches keep and from
// the streams of the agents, and turns it into facts. It decides nothing and writes nothing.
//
// A pass makes no request to the API server, but in two cases: a StatefulSet that has no Pod is asked for its events, since only
// they say why; and a Secret that the cache lacks is asked for, since one that exists must not be taken for missing.
package observe
