// Package credential makes a cluster's passwords and certificates. Complete keeps what is there and good, and makes what is
// missing, broken or about to expire: so a deleted Secret comes back, an edited password stays, and certificates are renewed.
//
// Time and randomness are arguments; nothing is read or written here.
package credential
