// Package upgradeable says whether the operator may be upgraded just now, and writes that down as the condition Upgradeable of
// OLM's OperatorCondition. OLM does not replace an operator that says False.
//
// What must not be interrupted is decided here and nowhere else, from the PostgresClusters as they are: their phase, the reason of
// their condition Progressing, and an annotation by which people ask for it. The package is pure.
package upgradeable
