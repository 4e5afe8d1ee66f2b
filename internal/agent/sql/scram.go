package sql

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/text/secure/precis"
)

const (
	scramIterations = 4096
	scramSaltBytes  = 16
	scramPrefix     = "SCRAM-SHA-256$"
)

// newVerifier is what PostgreSQL stores of a password (RFC 5803, the form in pg_authid.rolpassword).
func newVerifier(password string) (string, error) {
	salt := make([]byte, scramSaltBytes)
	_, _ = rand.Read(salt) // never fails
	return verifier(password, salt, scramIterations)
}

func verifier(password string, salt []byte, iterations int) (string, error) {
	salted, err := pbkdf2.Key(sha256.New, prepare(password), salt, iterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("computing a password verifier: %w", err)
	}
	stored := sha256.Sum256(mac(salted, "Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return scramPrefix + strconv.Itoa(iterations) + ":" + encode(salt) + "$" + encode(stored[:]) + ":" + encode(mac(salted, "Server Key")), nil
}

// fits says whether the verifier that PostgreSQL has is that of the password.
func fits(present, password string) bool {
	rest, ok := strings.CutPrefix(present, scramPrefix)
	if !ok {
		return false
	}
	parameters, _, ok := strings.Cut(rest, "$")
	if !ok {
		return false
	}
	count, saltText, ok := strings.Cut(parameters, ":")
	if !ok {
		return false
	}
	iterations, err := strconv.Atoi(count)
	if err != nil || iterations < 1 || iterations > 10_000_000 {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(saltText)
	if err != nil {
		return false
	}
	expected, err := verifier(password, salt, iterations)
	return err == nil && subtle.ConstantTimeCompare([]byte(expected), []byte(present)) == 1
}

// prepare normalises a password as clients do; one that cannot be normalised is used as it is.
func prepare(password string) string {
	if prepared, err := precis.OpaqueString.String(password); err == nil {
		return prepared
	}
	return password
}

func mac(key []byte, text string) []byte {
	hash := hmac.New(sha256.New, key)
	hash.Write([]byte(text))
	return hash.Sum(nil)
}
