// Package backup has the rules of backups: when a schedule fires, which backups a retention keeps, where a backup runs, from which
// backup a recovery starts, and what is to be done next for a PostgresBackup. It is pure, and knows nothing of Kubernetes.
//
// What is true of every plan of retention:
//
//   - Every time within the period can be recovered, once it could: the newest full backup that is older than the period is kept.
//   - The last good backup is never removed, however old it is, and a damaged one is never taken for it.
//   - A backup is removed only together with all that need it.
package backup
