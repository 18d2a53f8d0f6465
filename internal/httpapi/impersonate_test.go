package httpapi

import (
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// FuzzWantedUser checks that any headers name a user, mean no impersonation, or are 400.
func FuzzWantedUser(f *testing.F) {
	f.Add("u", "g", "7", "Scopes", "v")
	f.Add("", "g", "", "%2f%zz", "")
	f.Fuzz(func(t *testing.T, user, group, uid, key, value string) {
		h := http.Header{impersonateUser: {user}, impersonateGroup: {group}, impersonateUID: {uid}, impersonateExtra + key: {value, value}}
		u, err := wantedUser(h)
		switch {
		case err != nil && (!apierrors.IsBadRequest(err) || user != ""):
			t.Errorf("%q: %v", h, err)
		case err == nil && (u == nil || u.Name != user || u.UID != uid || u.Groups[0] != group || len(u.Extra) != 1):
			t.Errorf("%q: %+v", h, u)
		}
	})
}

func TestManyImpersonated(t *testing.T) {
	h := http.Header{impersonateUser: {"u"}, impersonateGroup: make([]string, maxImpersonated)}
	if _, err := wantedUser(h); err != nil {
		t.Error(err)
	}
	h[impersonateExtra+"A"] = []string{"x"}
	if _, err := wantedUser(h); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "more than 1000") {
		t.Error(err)
	}
}
