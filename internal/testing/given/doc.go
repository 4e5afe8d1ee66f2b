// Package given makes facts for tests that read like sentences:
//
//	given.Cluster("prod-db").Replicas(3).With(
//		given.Member(1).Primary().Ready(),
//		given.Member(2).Standby().Ready(),
//		given.Member(3).Unheard(time.Minute),
//	).Facts()
//
// What is not said is as in a healthy cluster of the default kind: a StatefulSet, a Pod from its present template, a bound volume
// of 1Gi, volumes kept.
package given
