// Package validate has the rules of a PostgresCluster that its schema cannot express, because they need to know more than the
// object. The webhook asks them before an object is stored (Create, Update), and every pass of reconcile asks them again
// (Problems), since the webhook may have been out, or the world may have changed since. How an object is deleted only the webhook can
// know (Delete).
//
// The rules, in the order in which they are told:
//
//   - version: there is one; an object that came as v1alpha1 and was not converted has none
//   - storage-class: the StorageClass exists
//   - storage-growth: the volumes of a cluster that is to have larger ones can grow
//   - image: the image's name can be one, and its tag is not obviously of another major (a warning)
//   - volumes: volumes that an earlier cluster of the name left are of the same major
//   - names: nobody else has an object of a name that the cluster needs
//   - parameters: no parameter is one that pgsteward sets itself; a name that looks misspelt is a warning
//   - memory: what PostgreSQL reserves when it starts fits into the memory limit
//   - availability: fewer synchronous standbys than instances; the lease's timings are in the right relation
//   - backup: the schedule fires some day, in a time zone that exists; what a recovery begins with can be reached
//   - switchover-window: it opens some day, in a time zone that exists
//   - annotations: a switchover, a fence and a forced failover name instances that there are
//
// What is not known gives no objection. An update is judged only by what it changes, so that a cluster whose surroundings have
// changed can still be scaled, mended and deleted.
//
// It takes no client, context or clock.
package validate
