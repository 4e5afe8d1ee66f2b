// Package console is a web page on which people see their PostgresClusters, and, where that is switched on, act on them.
//
// # Who sees what
//
// The console has a ServiceAccount of its own, which may list and watch PostgresClusters, PostgresBackups and their events, and nothing
// else: from there come the objects, by informers. What of them a page shows is decided by what the API server says to the token of
// the user: SelfSubjectReview says who that is, SelfSubjectAccessReview whether that one may list or get such objects in that
// namespace. Both answers are kept for a minute at most, so that a right that was taken away, or a token that has expired, ends within that time.
// If the API server does not answer, nobody sees anything. Nothing is done in the name of the console: what a user asks for is
// sent with the user's own token, and the API server decides.
//
// # Sessions
//
// The token is in a cookie, encrypted and authenticated by a key that only the console has (AES-GCM), which scripts cannot read and
// which is sent to this host only, over TLS, and not from other sites. Nothing of a session is kept here, so that any replica
// that has the key can answer. A session ends after a fixed time, when the token does, or when the user logs out. With a token header, which a
// proxy sets to the token of the user whom it has authenticated, there are no cookies.
//
// Requests that change something must come from a page of the console itself: the browser says where they come from, and they carry a value
// that is derived from the session by the same key. Tokens are in no address and in no log.
//
// # Pages
//
// Pages are made here, from templates that escape what they are given; what they say is decided in package view. The policy
// of their content allows nothing but the console's own files. A script follows a stream of events and fetches the page anew when
// an informer has seen a change. Without scripts, pages work as well and stay as they are until they are loaded again.
package console
