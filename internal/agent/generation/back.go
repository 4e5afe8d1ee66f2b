package generation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Back makes the server that runs here, which had the writes until the switch, follow the one that has them now.
func (p *Place) Back(ctx context.Context) error {
	m, err := p.origin()
	if err != nil {
		return err
	}
	first, err := p.Local(ctx, "postgres")
	if err != nil {
		return err
	}
	defer closeConn(first)
	// Those of the way there: their subscriptions are gone, or about to be.
	if err := dropSlots(ctx, first, ""); err != nil {
		return err
	}
	oids, err := p.remoteDatabases(ctx)
	if err != nil {
		return err
	}
	for _, database := range slices.Sorted(maps.Keys(m.Reverse)) {
		if err := p.backDatabase(ctx, m, database, oids[database]); err != nil {
			return fmt.Errorf("following back in database %s: %w", database, err)
		}
	}
	return nil
}

// origin is the marker of an instance that is the way back.
func (p *Place) origin() (*Marker, error) {
	m, err := ReadMarker(p.New)
	switch {
	case err != nil:
		return nil, err
	case m == nil || !m.Origin || m.ID != p.Upgrade.ID:
		return nil, over(reasonSource, "this instance is not the way back of the upgrade "+p.Upgrade.ID)
	case len(m.Reverse) == 0:
		return nil, over(reasonSlot, "no slots were made for the way back")
	}
	return m, nil
}

// remoteDatabases are the live primary's databases: their numbers are in the names of the slots there.
func (p *Place) remoteDatabases(ctx context.Context) (map[string]uint32, error) {
	c, err := p.Remote(ctx, p.Source, "postgres")
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", p.Source, err)
	}
	defer closeConn(c)
	return readDatabases(ctx, c)
}

func (p *Place) backDatabase(ctx context.Context, m *Marker, database string, oid uint32) error {
	local, err := p.Local(ctx, database)
	if err != nil {
		return err
	}
	defer closeConn(local)
	if err := DropDDLGuard(ctx, local); err != nil {
		return err
	}
	name := naming.UpgradeSlot(m.ID, oid)
	var enabled bool
	err = local.QueryRow(ctx, `SELECT subenabled FROM pg_subscription
		WHERE subname = $1 AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())`, name).Scan(&enabled)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		_, err = local.Exec(ctx, "CREATE SUBSCRIPTION "+pgx.Identifier{name}.Sanitize()+" CONNECTION "+quoteLiteral(p.Conninfo(p.Source, database))+
			" PUBLICATION "+naming.UpgradePublication+" WITH (create_slot = false, slot_name = "+quoteLiteral(name)+
			", copy_data = false, streaming = on"+originNone(p.major())+")")
	case err == nil && !enabled:
		_, err = local.Exec(ctx, "ALTER SUBSCRIPTION "+pgx.Identifier{name}.Sanitize()+" ENABLE")
	}
	if err != nil {
		return fmt.Errorf("making the subscription: %w", err)
	}
	return nil
}

// major is that of the server that runs here.
func (p *Place) major() int { return p.Programs.Version.Major }

// LookBack says how the way back is.
func (p *Place) LookBack(ctx context.Context) (agentapi.ReverseStatus, error) {
	var status agentapi.ReverseStatus
	m, err := p.origin()
	if err != nil {
		return status, err
	}
	source, err := p.Remote(ctx, p.Source, "postgres")
	if err != nil {
		return status, fmt.Errorf("connecting to %s: %w", p.Source, err)
	}
	defer closeConn(source)
	found, err := slots(ctx, source, m.ID)
	if err != nil {
		return status, err
	}
	found = slices.DeleteFunc(found, func(s slotState) bool { return m.Reverse[s.Database] == "" })
	for _, slot := range found {
		if slot.Lost {
			return status, over(reasonSlot, fmt.Sprintf("%s has removed WAL that the way back needs", p.Source))
		}
	}
	if len(found) < len(m.Reverse) {
		return status, over(reasonSlot, fmt.Sprintf("slots of the way back are gone on %s", p.Source))
	}
	status.Streaming, status.LagBytes = behind(found, len(m.Reverse))
	if status.Streaming {
		return status, nil
	}
	return status, p.whyNot(ctx, m.ID, func(problem *agentapi.Problem) { status.Problem = problem })
}
