package postgres

import "strings"

// Keyword is one keyword of a connection string and its value.
type Keyword struct{ Name, Value string }

// Conninfo is a libpq connection string of keywords and values
// (https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING).
func Conninfo(keywords ...Keyword) string {
	escape := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	parts := make([]string, len(keywords))
	for i, keyword := range keywords {
		parts[i] = keyword.Name + "='" + escape.Replace(keyword.Value) + "'"
	}
	return strings.Join(parts, " ")
}
