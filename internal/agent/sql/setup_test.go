package sql

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOnlySlotsInUse(t *testing.T) {
	t.Parallel()
	inUse, other := fmt.Errorf("%w: x", ErrSlotInUse), errors.New("no password")
	assert.True(t, OnlySlotsInUse(inUse))
	assert.True(t, OnlySlotsInUse(errors.Join(errors.Join(inUse, inUse))))
	assert.False(t, OnlySlotsInUse(errors.Join(errors.Join(inUse), other)), "the other matters")
	assert.False(t, OnlySlotsInUse(other))
}

func TestHasTransactionTimeout(t *testing.T) {
	t.Parallel()
	for version, has := range map[string]bool{
		"15.18 (Debian 15.18-0+deb12u1)": false, "16.9": false, "17.0": true, "18beta1": true, "": false,
	} {
		assert.Equal(t, has, hasTransactionTimeout(version), version)
	}
}
