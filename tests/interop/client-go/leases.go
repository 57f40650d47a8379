package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// candidate takes part in a leader election until it is stopped.
type candidate struct {
	stop    context.CancelFunc
	elector *leaderelection.LeaderElector
	ended   chan struct{}
}

func (c *check) run(client kubernetes.Interface, identity string, releases bool) *candidate {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: c.namespace, Name: "leader"},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration:   4 * time.Second,
		RenewDeadline:   3 * time.Second,
		RetryPeriod:     200 * time.Millisecond,
		ReleaseOnCancel: releases,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {},
			OnStoppedLeading: func() {},
		},
	})
	c.must(err, "a leader elector")
	ctx, stop := context.WithCancel(c.ctx)
	running := &candidate{stop, elector, make(chan struct{})}
	go func() {
		defer close(running.ended)
		elector.Run(ctx)
	}()
	return running
}

func (c *check) leaderElection() {
	breakable := newNetwork()
	unreliable := c.clientsFor(breakable.through(c.config, &recorder{}))
	first := c.run(c.typed, "first", true)
	c.eventually("the first leads", first.elector.IsLeader)
	second := c.run(unreliable.typed, "second", false)
	c.eventually("the second knows who leads", func() bool { return second.elector.GetLeader() == "first" })
	c.expect(!second.elector.IsLeader(), "two lead")
	first.stop()
	<-first.ended
	c.eventually("the second leads", second.elector.IsLeader)
	c.expect(c.holder() == "second 1", "the lease says %s", c.holder())

	third := c.run(c.typed, "third", true)
	c.eventually("the third knows who leads", func() bool { return third.elector.GetLeader() == "second" })
	breakable.cut(true)
	// It stops of its own accord before the lease is over.
	<-second.ended
	c.eventually("the third leads", third.elector.IsLeader)
	c.expect(c.holder() == "third 2", "the lease says %s", c.holder())
	third.stop()
	<-third.ended
	c.expect(c.holder() == " 2", "the lease that was let go says %s", c.holder())
}

func (c *check) holder() string {
	lease, err := c.typed.CoordinationV1().Leases(c.namespace).Get(c.ctx, "leader", metav1.GetOptions{})
	c.must(err, "the lease")
	return fmt.Sprint(*lease.Spec.HolderIdentity, " ", *lease.Spec.LeaseTransitions)
}
