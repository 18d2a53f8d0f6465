package builtin_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin/columns"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

// columnsMeta is the metadata of all objects, which are 5 minutes old.
const columnsMeta = "metadata: {name: x, namespace: ns, creationTimestamp: 2020-01-01T00:00:00Z}"

var columnsNow = time.Date(2020, 1, 1, 0, 5, 0, 0, time.UTC)

// prints runs a table about how a kind prints. Header is the names of its columns, with a
// + before those of wide output; each row wants the cells of an object, and a line for each
// condition of its row.
func prints[T any, P interface {
	*T
	runtime.Object
}](t *testing.T, header, valid string, rows []testkinds.Rule) {
	t.Helper()
	of := columns.Of(P(new(T)))
	if got := columnNames(t, of); got != header {
		t.Errorf("%T has the columns\n%s\nwant\n%s", *new(T), got, header)
	}
	testkinds.Rules(t, valid, rows, func(o *T) []string {
		var row resource.Row
		of.Cells(P(o), &row)
		var shown struct {
			Cells      []any
			Conditions []metav1.TableRowCondition
		}
		if err := json.Unmarshal([]byte("{"+string(row.Append(nil, columnsNow))+"}"), &shown); err != nil {
			t.Fatal(err)
		}
		cells := make([]string, len(shown.Cells))
		for i, cell := range shown.Cells {
			cells[i] = fmt.Sprint(cell)
		}
		lines := []string{strings.Join(cells, " | ")}
		for _, c := range shown.Conditions {
			lines = append(lines, fmt.Sprintf("%s=%s: %s", c.Type, c.Status, c.Reason))
		}
		return lines
	})
}

func columnNames(t *testing.T, of *resource.Columns) string {
	t.Helper()
	var all []metav1.TableColumnDefinition
	if err := json.Unmarshal(of.Definitions(), &all); err != nil {
		t.Fatal(err)
	}
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = c.Name
		if c.Priority > 0 {
			texts[i] = "+" + c.Name
		}
	}
	return strings.Join(texts, " | ")
}
