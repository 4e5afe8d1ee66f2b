// Package observe is the only reader: it reads what there is of a PostgresCluster, from the cache that watches keep and from
// the streams of the agents, and turns it into facts. It decides nothing and writes nothing.
//
// A pass makes no request to the API server, but for one case: a StatefulSet that has no Pod is asked for its events, since
// only they say why.
package observe
