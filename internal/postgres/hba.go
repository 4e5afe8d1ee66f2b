package postgres

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// IdentMap is the name of the map in pg_ident.conf by which the agent is the superuser.
const IdentMap = "pgsteward"

// UpgradeMap is the name of the map by which the holder of the standbys' certificate is the role of major upgrades.
const UpgradeMap = "pgsteward_upgrade"

// HBA is what pg_hba.conf is made of.
type HBA struct {
	// ReplicationUser is the role of standbys; UpgradeUser that of a major upgrade, which works on the other generation's server, or
	// empty while there is none.
	ReplicationUser string
	UpgradeUser     string
	// Closed keeps everybody out but the agent and our own roles.
	Closed bool
	// Lines are the user's.
	Lines []string
}

// String is the content of pg_hba.conf (https://www.postgresql.org/docs/current/auth-pg-hba-conf.html). The first line that
// matches decides, so ours come first: the agent, and standbys, which need a certificate and nothing else. Then come the
// user's lines. What they leave open must use TLS and a password.
func (h HBA) String() string {
	rules := []string{"local    all          postgres  peer map=" + IdentMap}
	if !h.Closed {
		rules = append(rules, "local    all          all       scram-sha-256")
	}
	rules = append(rules,
		"hostssl  replication  "+h.ReplicationUser+"  all  cert",
		"hostssl  all          "+h.ReplicationUser+"  all  cert",
		"host     replication  "+h.ReplicationUser+"  all  reject",
		"host     all          "+h.ReplicationUser+"  all  reject",
	)
	if h.UpgradeUser != "" {
		rules = append(rules,
			"hostssl  all          "+h.UpgradeUser+"  all  cert map="+UpgradeMap,
			"host     all          "+h.UpgradeUser+"  all  reject",
		)
	}
	switch {
	case h.Closed:
		rules = append(rules, "local    all          all       reject", "host     all          all       all  reject",
			"host     replication  all       all  reject")
	default:
		for _, line := range h.Lines {
			rules = append(rules, strings.TrimSpace(line))
		}
		rules = append(rules, "hostssl  all          all       all  scram-sha-256")
	}
	return "# Written by pgsteward; changes made here are lost. Use spec.postgresql.pgHBA.\n" + strings.Join(rules, "\n") + "\n"
}

// Ident is the content of pg_ident.conf: the operating system's users that are the superuser on the Unix socket.
func Ident(superuser string, users ...string) string {
	out := "# Written by pgsteward; changes made here are lost.\n"
	for _, user := range users {
		out += IdentMap + "  \"" + user + "\"  " + superuser + "\n"
	}
	return out
}

// UpgradeIdent is what pg_ident.conf has beside that during a major upgrade: whose certificate the role is let in by.
func UpgradeIdent(commonName, upgradeUser string) string {
	if upgradeUser == "" {
		return ""
	}
	return UpgradeMap + "  \"" + commonName + "\"  " + upgradeUser + "\n"
}

var (
	hbaTypes   = []string{"local", "host", "hostssl", "hostnossl", "hostgssenc", "hostnogssenc"}
	hbaMethods = []string{
		"trust", "reject", "scram-sha-256", "md5", "password", "gss", "sspi", "ident", "peer", "ldap", "radius", "cert", "pam",
		"bsd", "oauth",
	}
)

// CheckHBA says what is wrong with the user's lines, if something is. It is stricter than PostgreSQL in that a line may not
// include files.
func CheckHBA(lines []string) error {
	for i, line := range lines {
		if err := checkHBALine(line); err != nil {
			return fmt.Errorf("pg_hba line %d (%q): %w", i+1, line, err)
		}
	}
	return nil
}

func checkHBALine(line string) error {
	if strings.ContainsAny(line, "\n\r\x00") || strings.HasSuffix(line, `\`) {
		return fmt.Errorf("must be one line")
	}
	fields, err := hbaFields(line)
	if err != nil || len(fields) == 0 {
		return err
	}
	kind, rest := fields[0], fields[1:]
	if !slices.Contains(hbaTypes, kind) {
		return fmt.Errorf("invalid connection type %q", kind)
	}
	if slices.ContainsFunc(rest, func(field string) bool { return strings.HasPrefix(field, "@") }) {
		return fmt.Errorf("files cannot be included")
	}
	if len(rest) < 2 {
		return fmt.Errorf("database or role is missing")
	}
	rest = rest[2:]
	if kind != "local" {
		if rest, err = skipHBAAddress(rest); err != nil {
			return err
		}
	}
	if len(rest) == 0 {
		return fmt.Errorf("authentication method is missing")
	}
	return checkHBAMethod(kind, rest[0], rest[1:])
}

func skipHBAAddress(fields []string) ([]string, error) {
	if len(fields) == 0 {
		return nil, fmt.Errorf("address is missing")
	}
	address := fields[0]
	if strings.Contains(address, "/") {
		if _, err := netip.ParsePrefix(address); err != nil {
			return nil, fmt.Errorf("invalid address %q", address)
		}
		return fields[1:], nil
	}
	if !isAddress(address) { // a host name, or all, samehost, samenet
		return fields[1:], nil
	}
	if len(fields) < 2 {
		return nil, fmt.Errorf("address %s needs a mask", address)
	}
	if !isAddress(fields[1]) {
		return nil, fmt.Errorf("address %s needs a mask, not %q", address, fields[1])
	}
	return fields[2:], nil
}

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

func checkHBAMethod(kind, method string, options []string) error {
	if !slices.Contains(hbaMethods, method) {
		return fmt.Errorf("invalid authentication method %q", method)
	}
	if method == "peer" && kind != "local" {
		return fmt.Errorf("peer authentication is only for local connections")
	}
	if method == "cert" && kind != "hostssl" {
		return fmt.Errorf("cert authentication is only for hostssl connections")
	}
	for _, option := range options {
		if name, _, ok := strings.Cut(option, "="); !ok || name == "" {
			return fmt.Errorf("authentication option %q is not of the form name=value", option)
		}
	}
	return nil
}

// hbaFields splits a line at blanks that are not quoted, up to a comment. A comma keeps what follows in the same field.
func hbaFields(line string) ([]string, error) {
	var fields []string
	var field strings.Builder
	quoted, begun, joined := false, false, false
	end := func() {
		if begun && !joined {
			fields = append(fields, field.String())
			field.Reset()
			begun = false
		}
	}
	for _, r := range line {
		switch {
		case r == '"':
			quoted, begun, joined = !quoted, true, false
		case quoted:
			field.WriteRune(r)
		case r == '#':
			joined = false
			end()
			return fields, nil
		case r == ' ' || r == '\t':
			end()
		default:
			field.WriteRune(r)
			begun, joined = true, r == ','
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quote is not closed")
	}
	joined = false
	end()
	return fields, nil
}
