package resource

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestAges compares ages with those of kubectl's library.
func TestAges(t *testing.T) {
	rng := testrand.New(t)
	check := func(d time.Duration) {
		var got string
		if err := json.Unmarshal(append(appendAge([]byte{'"'}, d), '"'), &got); err != nil || got != duration.HumanDuration(d) {
			t.Fatalf("%d s: %s (%v), want %s", d/time.Second, got, err, duration.HumanDuration(d))
		}
	}
	for s := -10; s < 12*hour; s++ {
		check(time.Duration(s)*time.Second + time.Duration(rng.IntN(1000))*time.Millisecond)
	}
	for range 100_000 {
		check(time.Duration(rng.Int64N(12 * year * int64(time.Second))))
	}
}

// TestFarAges checks the ages of times that are too far away for a time.Duration.
func TestFarAges(t *testing.T) {
	now := time.Now()
	year := func(n int) time.Time { return time.Date(n, 1, 1, 0, 0, 0, 0, time.UTC) }
	for _, since := range []time.Time{
		year(-400), year(1).Add(time.Second), year(1600), year(1677), year(1678), year(1700), year(1900), year(1969), year(1970),
		year(2200), year(2262), year(2263), year(2999), year(9999), year(1 << 20),
	} {
		var r Row
		r.Age(since)
		var got metav1.TableRow
		if err := json.Unmarshal([]byte("{"+string(r.Append(nil, now))+"}"), &got); err != nil {
			t.Fatal(err)
		}
		if want := duration.HumanDuration(now.Sub(since)); len(got.Cells) != 1 || got.Cells[0] != want {
			t.Errorf("since %v: %v, want %s", since, got.Cells, want)
		}
	}
}

func TestRow(t *testing.T) {
	now := time.Now()
	var r Row
	r.String("a\"<none>\n\u2028é")
	r.Int(-3)
	r.Bool(true)
	r.Age(now.Add(-90 * time.Second))
	r.Age(time.Time{})
	r.AgeIn("5 (", now.Add(-3*time.Hour), " ago)")
	r.Or("", "<none>")
	r.Conditions([]metav1.TableRowCondition{{Type: metav1.RowCompleted}})
	r.Compact()
	var got metav1.TableRow
	if err := json.Unmarshal([]byte("{"+string(r.Append(nil, now))+"}"), &got); err != nil {
		t.Fatal(err)
	}
	want := `[a"<none>` + "\n\u2028" + `é -3 true 90s <unknown> 5 (3h ago) <none>]`
	if fmt.Sprint(got.Cells) != want || len(got.Conditions) != 1 {
		t.Errorf("%v, want %s", got.Cells, want)
	}
	for d, want := range map[time.Duration]struct{ same, lasts bool }{
		0:              {same: true},
		time.Second:    {},
		12 * time.Hour: {lasts: true},
	} {
		before, _ := r.Moment(now)
		after, lasts := r.Moment(now.Add(d))
		if (before == after) != want.same || lasts != want.lasts {
			t.Errorf("after %v the row is the same: %t, and will be: %t; want %v", d, before == after, lasts, want)
		}
	}
}
