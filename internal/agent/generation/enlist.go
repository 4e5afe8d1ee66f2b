package generation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// enlist notes on the source which system follows from it, before it does: PostgreSQL makes slots there for copying tables that it names
// after that system, and which stay if that is gone. So Clean knows whose they are (naming.UpgradeSeeds).
func (p *Place) enlist(ctx context.Context, m *Marker) error {
	local, err := p.Local(ctx, "postgres")
	if err != nil {
		return err
	}
	defer closeConn(local)
	var system string
	if err := local.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()").Scan(&system); err != nil {
		return fmt.Errorf("asking for the new server's system: %w", err)
	}
	source, err := p.Remote(ctx, m.Source, "postgres")
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", m.Source, err)
	}
	defer closeConn(source)
	var listed string
	err = source.QueryRow(ctx, `SELECT coalesce((SELECT split_part(c, '=', 2) FROM pg_db_role_setting s, unnest(s.setconfig) c
		WHERE s.setrole = r.oid AND s.setdatabase = 0 AND split_part(c, '=', 1) = $2), '') FROM pg_roles r WHERE r.rolname = $1`,
		naming.UpgradeUser, naming.UpgradeSeeds).Scan(&listed)
	systems := strings.Fields(listed)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // it came as somebody else
		return nil
	case err != nil:
		return fmt.Errorf("reading which systems follow from %s: %w", m.Source, err)
	case slices.Contains(systems, system):
		return nil
	}
	value := quoteLiteral(strings.Join(append(systems, system), " "))
	if _, err := source.Exec(ctx, "ALTER ROLE "+upgradeUser+" SET "+naming.UpgradeSeeds+" = "+value); err != nil {
		return fmt.Errorf("noting on %s which system follows: %w", m.Source, err)
	}
	return nil
}
