package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// The prefix __Host- makes browsers take the cookie only with Secure, for the whole host and for no other.
	sessionCookie = "__Host-pgsteward-session"
	loginCookie   = "__Host-pgsteward-login"
	// tokenBytes is how long a token may be: more does not fit into a cookie, which browsers limit to 4096 bytes.
	tokenBytes = 2800
	// KeyBytes is the least length of the key.
	KeyBytes = 32
	// loginTime is how long a page of login is good for.
	loginTime = time.Hour
)

// session is what the cookie has.
type session struct {
	ID      string    `json:"id"`
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// sealer encrypts sessions, and derives the values by which forms are known to be ours.
type sealer struct {
	aead  cipher.AEAD
	forms []byte
	now   func() time.Time
}

func newSealer(key []byte, now func() time.Time) (*sealer, error) {
	if len(key) < KeyBytes {
		return nil, fmt.Errorf("the key of sessions has %d bytes; it needs %d", len(key), KeyBytes)
	}
	derive := func(purpose string) ([]byte, error) {
		return hkdf.Key(sha256.New, key, nil, "pgsteward console "+purpose, KeyBytes)
	}
	sessions, err := derive("sessions")
	if err != nil {
		return nil, fmt.Errorf("deriving the key of sessions: %w", err)
	}
	forms, err := derive("forms")
	if err != nil {
		return nil, fmt.Errorf("deriving the key of forms: %w", err)
	}
	block, err := aes.NewCipher(sessions)
	if err != nil {
		return nil, fmt.Errorf("making the cipher of sessions: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("making the cipher of sessions: %w", err)
	}
	return &sealer{aead: aead, forms: forms, now: now}, nil
}

func (s *sealer) seal(v session) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("sealing a session: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(sessionCookie))), nil
}

var errNoSession = errors.New("no session")

func (s *sealer) open(sealed string) (session, error) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return session{}, errNoSession
	}
	plain, err := s.aead.Open(nil, nil, raw, []byte(sessionCookie))
	if err != nil {
		return session{}, errNoSession
	}
	var v session
	if err := json.Unmarshal(plain, &v); err != nil || !s.now().Before(v.Expires) {
		return session{}, errNoSession
	}
	return v, nil
}

// formValue is what forms for that one must carry.
func (s *sealer) formValue(subject string) string {
	mac := hmac.New(sha256.New, s.forms)
	mac.Write([]byte(subject))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (s *sealer) isFormValue(value, subject string) bool {
	return hmac.Equal([]byte(value), []byte(s.formValue(subject)))
}

// setCookie sets one that scripts and other sites do not get; an age below 0 removes it.
func setCookie(w http.ResponseWriter, name, value string, age time.Duration) {
	seconds := int(age / time.Second)
	if age < 0 {
		seconds = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode,
	})
}

// random is a value that nobody guesses.
func random() string { return rand.Text() }
