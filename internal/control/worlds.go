package control

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// server serves the version and process of the server.
func (h *handler) server(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]any{"version": h.Version, "pid": os.Getpid(), "worlds": len(h.Worlds.Names())})
	return nil
}

func (h *handler) list(w http.ResponseWriter, _ *http.Request) error {
	type row struct {
		Name     string `json:"name"`
		Parent   string `json:"parent,omitempty"`
		Revision uint64 `json:"revision"`
		URL      string `json:"url"`
	}
	rows := []row{}
	for _, name := range h.Worlds.Names() {
		world, err := h.Worlds.Find(name)
		if errors.Is(err, ErrNotFound) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return err
		}
		d, err := world.Describe()
		if err != nil {
			return err
		}
		rows = append(rows, row{d.Name, d.Parent, d.Revision, d.URL})
	}
	writeJSON(w, http.StatusOK, map[string]any{"worlds": rows})
	return nil
}

// createRequest is the body of the creation of a world.
type createRequest struct {
	Name        string   `json:"name"`
	Parent      string   `json:"parent"`
	Revision    uint64   `json:"revision"`
	Since       uint64   `json:"since"`
	Controllers []string `json:"controllers"`
	Lease       string   `json:"lease"`
	Seed        uint64   `json:"seed"`
	Kubernetes  string   `json:"kubernetesVersion"`
}

func (h *handler) create(w http.ResponseWriter, r *http.Request) error {
	var body createRequest
	if err := readJSON(w, r, maxBodyBytes, &body); err != nil {
		return err
	}
	if body.Name != "" {
		if problems := validation.IsDNS1123Label(body.Name); len(problems) > 0 {
			return badRequest("the name %q of the world: %s", body.Name, problems[0])
		}
	}
	if body.Revision != 0 && body.Since > body.Revision {
		return badRequest("since %d: want at most the revision that the world begins with, %d", body.Since, body.Revision)
	}
	if body.Lease != "" && !h.Leases.held(body.Lease) {
		return fmt.Errorf("the lease %q: %w", body.Lease, ErrNotFound)
	}
	world, err := h.Worlds.Create(r.Context(), Options{
		Name: body.Name, Parent: cmp.Or(body.Parent, Root), Revision: body.Revision, Since: body.Since, Controllers: body.Controllers, Seed: body.Seed, KubernetesVersion: body.Kubernetes,
	})
	if err != nil {
		return err
	}
	d, err := world.Describe()
	if err != nil {
		return err
	}
	if body.Lease != "" && !h.Leases.bind(body.Lease, d.Name) { // the lease ended meanwhile
		h.Worlds.Delete(d.Name)
		return fmt.Errorf("the lease %q: %w", body.Lease, ErrNotFound)
	}
	writeJSON(w, http.StatusCreated, d)
	return nil
}

func (h *handler) get(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	d, err := world.Describe()
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, d)
	return nil
}

func (h *handler) delete(w http.ResponseWriter, r *http.Request) error {
	if err := h.Worlds.Delete(r.PathValue("world")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// maxGroups limits the groups of a user.
const maxGroups = 100

func (h *handler) addUser(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	var u User
	if err := readJSON(w, r, maxBodyBytes, &u); err != nil {
		return err
	}
	switch {
	case u.Name == "":
		return badRequest("the user has no name")
	case strings.ContainsFunc(u.Name, unicode.IsControl):
		return badRequest("the user's name %q has a control character", u.Name)
	case slices.ContainsFunc(u.Groups, func(g string) bool { return g == "" || strings.ContainsFunc(g, unicode.IsControl) }):
		return badRequest("the groups %q: want names without control characters", u.Groups)
	case len(u.Groups) > maxGroups:
		return badRequest("the user has %d groups: at most %d", len(u.Groups), maxGroups)
	}
	c, err := world.AddUser(u)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, c)
	return nil
}

// world returns the world that the path names.
func (h *handler) world(r *http.Request) (World, error) { return h.Worlds.Find(r.PathValue("world")) }
