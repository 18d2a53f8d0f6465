package registry

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// tokenVersion is the version of continue tokens, the same as kube-apiserver's.
const tokenVersion = "meta.k8s.io/v1"

// tokenText is a continue token before base64.
type tokenText struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

// token is a position in a list. A negative revision stands for the newest state.
type token struct {
	revision int64
	after    string // key relative to the list; the next chunk begins behind it
}

// encodeToken returns a token that continues a list after a key at a revision.
func encodeToken(revision int64, after string) string {
	text, err := json.Marshal(tokenText{tokenVersion, revision, "/" + after + "\x00"})
	if err != nil {
		panic(err) // impossible for two strings and a number
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// decodeToken decodes a token of this server or of a kube-apiserver.
func decodeToken(s string) (token, error) {
	t, err := parseToken(s)
	if err != nil {
		return token{}, apierrors.NewBadRequest("invalid continue token: " + err.Error())
	}
	return t, nil
}

func parseToken(s string) (token, error) {
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return token{}, fmt.Errorf("continue key is not valid: %w", err)
	}
	var t tokenText
	if err := json.Unmarshal(data, &t); err != nil {
		return token{}, fmt.Errorf("continue key is not valid: %w", err)
	}
	switch {
	case t.Version != tokenVersion:
		return token{}, fmt.Errorf("continue key is not valid: server does not recognize this encoded version %v", t.Version)
	case t.Revision == 0:
		return token{}, fmt.Errorf("continue key is not valid: incorrect encoded start resourceVersion (version %s)", tokenVersion)
	case t.Start == "":
		return token{}, fmt.Errorf("continue key is not valid: encoded start key empty (version %s)", tokenVersion)
	}
	key := "/" + strings.TrimPrefix(t.Start, "/")
	if path.Clean(key) != key {
		return token{}, errors.New("continue key is not valid: " + t.Start)
	}
	after, exclusive := strings.CutSuffix(key[1:], "\x00")
	if !exclusive {
		after = before(after)
	}
	return token{t.Revision, after}, nil
}

// before returns a key that sorts just before another. A token without the NUL names the first key
// of the next chunk.
func before(key string) string {
	if key == "" {
		return ""
	}
	last := key[len(key)-1]
	if last == 0 {
		return key[:len(key)-1]
	}
	return key[:len(key)-1] + string([]byte{last - 1}) + "\xff\xff\xff\xff"
}

// expiredToken is the response to a token whose revision is gone. It has a token that continues in
// the newest state.
func expiredToken(after string) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	err.ErrStatus.ListMeta.Continue = encodeToken(-1, after)
	return err
}

// ExpiredContinue returns the response to a continue token as if its revision were gone. A token that is not
// valid has an error of its own.
func ExpiredContinue(continueToken string) error {
	t, err := decodeToken(continueToken)
	if err != nil {
		return err
	}
	return expiredToken(t.after)
}

// nextToken returns the token after an object of a list.
func nextToken(revision store.Revision, key, prefix string) string {
	return encodeToken(int64(revision), strings.TrimPrefix(key, prefix))
}
