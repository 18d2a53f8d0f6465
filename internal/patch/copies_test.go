package patch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestCopiesAlone: the bound on copies is ours, and that of the library, which is one
// for the process, stays as it was.
func TestCopiesAlone(t *testing.T) {
	doubled := `[{"op":"add","path":"/a","value":"` + strings.Repeat("x", 1000) + `"},{"op":"add","path":"/l","value":[]}` +
		strings.Repeat(`,{"op":"copy","from":"","path":"/l/-"}`, 40) + `]`
	for name, patch := range map[string]string{
		"doubling": doubled,
		"array":    `[{"op":"add","path":"/l","value":[1,2,3]}` + strings.Repeat(`,{"op":"copy","from":"/l","path":"/l/-"}`, 40) + `]`,
	} {
		_, err := JSON([]byte(`{}`), []byte(patch), true)
		if status, ok := err.(apierrors.APIStatus); !ok || status.Status().Code != http.StatusRequestEntityTooLarge && status.Status().Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %v", name, err)
		}
	}
	large := fmt.Sprintf(`{"a":1,"b":%q}`, strings.Repeat("x", 2<<20))
	var often []string
	n := 1000
	if tier.IsFull(t) {
		n = 5000
	}
	for i := range n {
		often = append(often, fmt.Sprintf(`{"op":"copy","from":"/a","path":"/c%d"}`, i))
	}
	if _, err := JSON([]byte(large), []byte("["+strings.Join(often, ",")+"]"), true); err != nil {
		t.Errorf("%d copies in 2 MiB: %v", n, err)
	}
	if p, err := JSON([]byte(`{"a":1}`), []byte("["+strings.Join(often, ",")+"]"), true); err != nil || !strings.Contains(string(p.Document), fmt.Sprintf(`"c%d":1`, n-1)) {
		t.Errorf("%d copies in a small object: %v", n, err)
	}
	if jsonpatch.AccumulatedCopySizeLimit != 0 {
		t.Errorf("the bound of the process is %d", jsonpatch.AccumulatedCopySizeLimit)
	}
}

// TestGroupsOfCopies checks that operations applied in groups have the result and the errors of
// those applied at once.
func TestGroupsOfCopies(t *testing.T) {
	r := testrand.New(t)
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	path := func() string { return pick("/a", "/b", "/c", "/a/x", "/a/y", "/l", "/l/0", "/l/-", "/l/2", "") }
	same, refused := 0, 0
	for range 5000 {
		var list []string
		for range 1 + r.IntN(12) {
			o := map[string]any{"op": pick("add", "copy", "copy", "copy", "move", "remove", "replace", "test"), "path": path(), "from": path()}
			o["value"] = []any{1, "x<y", map[string]any{"x": 1.0, "y": nil}, []any{1, 2}}[r.IntN(4)]
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, string(text))
		}
		text := "[" + strings.Join(list, ",") + "]"
		const document = `{"a":{"x":1,"y":"é"},"b":[{"k":1}],"l":[1,2,3]}`
		operations, err := jsonpatch.DecodePatch([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		want, wantErr := guarded(func() ([]byte, error) { return operations.Apply([]byte(document)) })
		got, err := applyAll([]byte(document), operations, 200+r.IntN(2000))
		switch {
		case apierrors.IsRequestEntityTooLargeError(err):
			refused++
		case (err == nil) != (wantErr == nil) || err == nil && string(got) != string(want) || err != nil && err.Error() != wantErr.Error():
			t.Fatalf("%s\nin groups: %s %v\nat once:   %s %v", text, got, err, want, wantErr)
		default:
			same++
		}
	}
	t.Logf("%d were the same, %d were too large", same, refused)
}
