// Package notify wakes the readers of topics.
//
// A reader has a Waiter, which joins a topic. A writer calls Note when it records a change that the topic
// selects, and Notify when readers can see the change. A revision says how new a change is.
//
// # Batches
//
// A topic notifies its waiters in batches, one batch at a time. A change that is
// published during a batch notifies no one: the end of the batch begins the next one.
// Under load each reader therefore runs once for several changes, and notifying costs
// a writer nothing. A batch ends when all waiters that it woke have read (and, in a fanout, have
// delivered). They send afterwards, so a slow client delays no batch. A topic with many
// waiters also keeps up to two milliseconds between batches. The first change after a
// quiet moment never waits, and neither does a change with few waiters.
//
// A waiter that was busy when its batch began reads before it waits again, unless
// another batch is due: then it takes part in that one.
package notify
