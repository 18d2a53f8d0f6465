package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/forkapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// maxForkRequest bounds the body of a request for a fork, in bytes.
const maxForkRequest = 16 << 10

// serveForks serves requests to forksPath. The user may send them.
func (f *forks) serveForks(rw http.ResponseWriter, q *http.Request) {
	name := strings.TrimPrefix(strings.TrimPrefix(q.URL.Path, forksPath), "/")
	switch {
	case name == "" && q.Method == http.MethodGet:
		respond(rw, http.StatusOK, forkapi.List{Forks: f.describe()})
	case name == "" && q.Method == http.MethodPost:
		f.createFork(rw, q)
	case name == "" || q.Method != http.MethodGet && q.Method != http.MethodDelete:
		fail(rw, http.StatusMethodNotAllowed, "forks are listed with GET "+forksPath+", made with POST "+forksPath+", and deleted with DELETE "+forksPath+"/NAME")
	default:
		f.oneFork(rw, q, name)
	}
}

// oneFork returns or deletes a fork.
func (f *forks) oneFork(rw http.ResponseWriter, q *http.Request, name string) {
	w, k := f.get(name)
	var described forkapi.Fork
	switch {
	case k != nil:
		described = k.describe()
	case w != nil:
		described = w.describe()
	default:
		noFork(rw, name)
		return
	}
	if q.Method == http.MethodDelete {
		_, err := f.delete(name)
		switch {
		case errors.Is(err, errForkLog):
			fail(rw, http.StatusInternalServerError, "the fork is not deleted: "+err.Error())
			return
		case err != nil:
			f.process.logOf(logForks).Warn("a fork was not closed cleanly", "fork", name, "err", err)
		}
	}
	respond(rw, http.StatusOK, described)
}

// createFork makes a fork as the body says.
func (f *forks) createFork(rw http.ResponseWriter, q *http.Request) {
	var asked forkapi.Request
	body, err := io.ReadAll(q.Body)
	if err == nil && len(body) > 0 {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields() // a misspelt keep would make a fork that ends with the server
		if err = d.Decode(&asked); err == nil && d.More() {
			err = errors.New("it goes on after the object")
		}
	}
	if err != nil {
		fail(rw, http.StatusBadRequest, "the request for a fork cannot be read: "+err.Error())
		return
	}
	o := ForkOptions{Name: asked.Name, Controllers: asked.Controllers, Keep: asked.Keep, KubernetesVersion: asked.KubernetesVersion}
	if asked.ResourceVersion != "" {
		if o.At, err = strconv.ParseUint(asked.ResourceVersion, 10, 64); err != nil || o.At == 0 {
			fail(rw, http.StatusBadRequest, "the resourceVersion of a fork is not a number above zero")
			return
		}
	}
	parent := f.root
	if asked.From != "" {
		if parent, err = f.find(q.Context(), asked.From); err != nil || parent == nil {
			noWorld(rw, asked.From, err)
			return
		}
	}
	w, err := f.Fork(q.Context(), parent, o)
	switch {
	case err == nil:
		f.hold(w, false) // the client has a name, not the world
		respond(rw, http.StatusCreated, w.describe())
	case errors.Is(err, ErrForkExists):
		exists := apierrors.NewAlreadyExists(schema.GroupResource{Resource: "forks"}, asked.Name)
		exists.ErrStatus.Message = fmt.Sprintf("fork %q already exists", asked.Name)
		refuse(rw, exists)
	case errors.Is(err, ErrTooManyForks), errors.Is(err, ErrTooManyKept):
		fail(rw, http.StatusTooManyRequests, err.Error())
	case errors.Is(err, ErrForkMemory), errors.Is(err, store.ErrNoSpace), errors.Is(err, syscall.ENOSPC):
		fail(rw, http.StatusInsufficientStorage, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		fail(rw, http.StatusGatewayTimeout, "the fork was not made in the time of the request")
	case errors.Is(err, errForkLog):
		fail(rw, http.StatusInternalServerError, err.Error())
	case errors.As(err, new(*store.ExpiredError)):
		fail(rw, http.StatusGone, err.Error())
	default:
		fail(rw, http.StatusBadRequest, err.Error())
	}
}
