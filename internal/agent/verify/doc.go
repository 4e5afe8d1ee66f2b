// Package verify is the process that restores the latest backup of a cluster, checks what comes of it and throws it away. It runs in a Pod
// of its own, with a volume of its own. It must do the cluster no harm: it uses the repository only to read, connects to none of the
// cluster's servers, and the server that it starts takes connections from nobody else, archives nothing and begins no replication.
package verify
