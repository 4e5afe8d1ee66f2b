package controllers_test

import (
	"testing"

	"github.com/pgsteward/pgsteward/internal/testing/apiserver"
)

func TestMain(m *testing.M) { apiserver.Main(m) }
