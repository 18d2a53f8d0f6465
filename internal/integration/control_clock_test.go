package integration_test

import (
	"net/http"
	"testing"
	"time"
)

// TestControlClock: forks have clocks that move alone, and forks of them begin with their time. The root has none.
func TestControlClock(t *testing.T) {
	a := startControl(t)
	now := func(world string) time.Time {
		var c struct{ Now time.Time }
		a.do(http.StatusOK, "GET", "/control/v1/worlds/"+world+"/clock", "", &c)
		return c.Now
	}
	a.create(`{"name":"a"}`)
	a.create(`{"name":"b"}`)
	var moved struct{ Now time.Time }
	a.do(http.StatusOK, "POST", "/control/v1/worlds/a/clock/advance", `{"milliseconds":86400000}`, &moved)
	a.create(`{"name":"c","parent":"a"}`)
	for world, want := range map[string]time.Duration{"root": 0, "b": 0, "a": 24 * time.Hour, "c": 24 * time.Hour} {
		ahead := time.Until(now(world)).Round(time.Hour)
		if ahead != want {
			t.Errorf("the clock of %s is %v ahead, want %v", world, ahead, want)
		}
	}
	if now("a").Before(moved.Now) {
		t.Errorf("advance has responded %v, later than it is", moved.Now)
	}
	for _, body := range []string{`{}`, `{"milliseconds":0}`, `{"milliseconds":-1}`, `{"milliseconds":315360000001}`} {
		a.do(http.StatusBadRequest, "POST", "/control/v1/worlds/a/clock/advance", body, nil)
	}
	const tenYears = `{"milliseconds":315360000000}`
	for code := http.StatusOK; code == http.StatusOK; {
		if now("a").Year() > 2189 {
			code = http.StatusBadRequest
		}
		a.do(code, "POST", "/control/v1/worlds/a/clock/advance", tenYears, nil)
	}
	a.do(http.StatusForbidden, "POST", "/control/v1/worlds/root/clock/advance", tenYears, nil)
	a.do(http.StatusNotFound, "POST", "/control/v1/worlds/none/clock/advance", tenYears, nil)
}
