package store

// trees is the state of the edit that leads to the next State. Store.mu guards it.
type trees struct {
	edit    edit // since the published state
	bytes   int64
	touched []*collection
	// standIns are the objects of the newest state that cannot be read, with their collections. unreadableUpTo is the newest
	// revision with a stand-in.
	standIns       map[*Object]*collection
	unreadableUpTo Revision
}

// start starts at a state, with the first token of edits. No node of the state has that token or a later
// one.
func (t *trees) start(s *State, token uint64) {
	t.bytes = s.bytes
	t.edit.token = token
}
