package integration_test

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"flag"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// recordedExpressions are expressions in objects of many kinds, with the responses of kube-apiserver to
// dry-run creates.
//
//go:embed testdata/expressions.json.gz
var recordedExpressions []byte

var expressionsAt = flag.String("expressions-at", "", "check only the recorded expressions in this place")

// TestStoredExpressions checks which CEL expressions are refused when they are stored, and with which
// words.
func TestStoredExpressions(t *testing.T) {
	z, err := gzip.NewReader(bytes.NewReader(recordedExpressions))
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Bodies map[string]struct {
			Path string
			Body json.RawMessage
		}
		Responses []struct {
			At, Expression, Message string
			Code                    int
		}
	}
	if err := json.NewDecoder(z).Decode(&recorded); err != nil {
		t.Fatal(err)
	}
	s := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}})
	c := s.RESTConfig()
	client := servertest.Client(t, c)
	wrong := 0
	for _, want := range recorded.Responses {
		if *expressionsAt != "" && want.At != *expressionsAt {
			continue
		}
		of := recorded.Bodies[want.At]
		text, err := json.Marshal(want.Expression)
		if err != nil {
			t.Fatal(err)
		}
		body := strings.Replace(string(of.Body), `"{EXPRESSION}"`, string(text), 1)
		code, response := send(t, client, "POST", c.Host+of.Path+"?dryRun=All", body)
		var got metav1.Status
		if code != 201 {
			if err := json.Unmarshal([]byte(response), &got); err != nil {
				t.Fatal(err)
			}
		}
		if code != want.Code || got.Message != want.Message {
			if wrong++; wrong <= 20 {
				at := max(0, commonPrefix(got.Message, want.Message)-100)
				t.Errorf("%s %.100q, from byte %d:\ngot  %d %.300s\nwant %d %.300s", want.At, want.Expression, at, code, got.Message[at:], want.Code, want.Message[at:])
			}
		}
	}
	if wrong > 20 {
		t.Errorf("%d responses are wrong", wrong)
	}
}

func commonPrefix(a, b string) int {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return i
}

// TestAdminAccess checks which claims may have access to devices as an administrator.
func TestAdminAccess(t *testing.T) { scenario(t, "admin_access.txt", &tidemark.Server{}) }
