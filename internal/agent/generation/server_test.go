package generation

import "strings"

// splitStatements splits statements that must not be in one transaction.
func splitStatements(text string) []string {
	var statements []string
	for statement := range strings.SplitSeq(text, ";\n\t") {
		if strings.TrimSpace(statement) != "" {
			statements = append(statements, statement)
		}
	}
	return statements
}
