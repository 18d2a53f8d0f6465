package authn

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/tidemark-dev/tidemark/internal/reload"
)

// TokenFile reads tokens from a file, and reads it again when it changes. Each line is
//
//	token,user,uid,"group1,group2"
//
// in CSV; the groups are optional. An invalid file is an error. If a changed file is invalid,
// that is logged and the tokens stay as they are. now is the clock for checking the file; nil:
// time.Now.
func TokenFile(path string, now func() time.Time, log *slog.Logger) (Tokens, error) {
	v, err := reload.New(reload.Config[map[[sha256.Size]byte]*User]{
		Files: []string{path},
		Load:  func() (map[[sha256.Size]byte]*User, error) { return readTokens(path) },
		Now:   now,
		Log:   log,
	})
	if err != nil {
		return nil, err
	}
	return known(v.Get), nil
}

func readTokens(path string) (map[[sha256.Size]byte]*User, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	users, err := parseTokens(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return users, nil
}

// parseTokens reads the CSV. Its errors name lines and never show their content.
func parseTokens(b []byte) (map[[sha256.Size]byte]*User, error) {
	r := csv.NewReader(bytes.NewReader(b))
	r.FieldsPerRecord = -1
	users := map[[sha256.Size]byte]*User{}
	lines := map[[sha256.Size]byte]int{}
	for {
		record, err := r.Read()
		if err == io.EOF {
			return users, nil
		}
		var wrong *csv.ParseError
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf("line %d, column %d: %w", wrong.Line, wrong.Column, wrong.Err)
		}
		if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		if len(record) < 3 || record[0] == "" || record[1] == "" {
			return nil, fmt.Errorf(`line %d has %d columns, or an empty one: want token,user,uid,"group1,group2"; the groups are optional`, line, len(record))
		}
		sum := sha256.Sum256([]byte(record[0]))
		if before, ok := lines[sum]; ok {
			return nil, fmt.Errorf("line %d has the token of line %d: a token names one user", line, before)
		}
		lines[sum] = line
		u := &User{Name: record[1], UID: record[2]}
		if len(record) > 3 { // an empty column is one group without a name, as in kube-apiserver
			u.Groups = strings.Split(record[3], ",")
		}
		users[sum] = u.InGroup()
	}
}
