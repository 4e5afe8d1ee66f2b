package servers

import "strings"

// Statements splits statements, none of which has a semicolon in it, for those that must not be in one transaction.
func Statements(text string) []string {
	var statements []string
	for statement := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(statement) != "" {
			statements = append(statements, statement)
		}
	}
	return statements
}
