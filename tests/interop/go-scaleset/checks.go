package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/actions/scaleset"
)

func (w *world) checks(ctx context.Context) error {
	for _, check := range []struct {
		name string
		run  func(context.Context) (any, error)
	}{
		{"scale sets", w.scaleSets},
		{"runner groups", w.runnerGroups},
		{"runners", w.runners},
		{"job still running", w.jobStillRunning},
		{"session conflict", w.sessionConflict},
		{"session refresh", w.sessionRefresh},
		{"session eviction", w.sessionEviction},
		{"rate limit", w.rateLimit},
	} {
		details, err := check.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", check.name, err)
		}
		report(check.name, details)
	}
	return nil
}

func (w *world) newScaleSet(ctx context.Context, name string, labels ...string) (*scaleset.RunnerScaleSet, error) {
	wanted := &scaleset.RunnerScaleSet{
		Name:          name,
		RunnerGroupID: 1,
		RunnerSetting: scaleset.RunnerSetting{DisableUpdate: true},
	}
	for _, label := range labels {
		wanted.Labels = append(wanted.Labels, scaleset.Label{Name: label, Type: "System"})
	}
	return w.client.CreateRunnerScaleSet(ctx, wanted)
}

func (w *world) scaleSets(ctx context.Context) (any, error) {
	none, err := w.client.GetRunnerScaleSet(ctx, 1, "first")
	if err != nil || none != nil {
		return nil, fmt.Errorf("a scale set before there is one: %v, %w", none, err)
	}
	created, err := w.newScaleSet(ctx, "first", "first", "linux")
	if err != nil {
		return nil, err
	}
	if err := expect(created.ID > 0 && created.RunnerGroupName == "Default" && created.Statistics != nil &&
		len(created.Labels) == 2 && created.RunnerSetting.DisableUpdate && !created.CreatedOn.IsZero(),
		"created: %+v", created); err != nil {
		return nil, err
	}
	_, err = w.newScaleSet(ctx, "first")
	if !contains(err, "RunnerScaleSetExistsException") {
		return nil, fmt.Errorf("a second one of that name: %w", err)
	}
	found, err := w.client.GetRunnerScaleSet(ctx, 1, "first")
	if err != nil || found == nil || found.ID != created.ID {
		return nil, fmt.Errorf("by name: %+v, %w", found, err)
	}
	updated, err := w.client.UpdateRunnerScaleSet(ctx, created.ID, &scaleset.RunnerScaleSet{Name: "renamed"})
	if err != nil || updated.Name != "renamed" || !updated.RunnerSetting.DisableUpdate {
		return nil, fmt.Errorf("renamed: %+v, %w", updated, err)
	}
	byID, err := w.client.GetRunnerScaleSetByID(ctx, created.ID)
	if err != nil || byID.Name != "renamed" || byID.RunnerGroupID != 1 {
		return nil, fmt.Errorf("by id: %+v, %w", byID, err)
	}
	if err := w.client.DeleteRunnerScaleSet(ctx, created.ID); err != nil {
		return nil, err
	}
	_, err = w.client.GetRunnerScaleSetByID(ctx, created.ID)
	if !contains(err, "RunnerScaleSetNotFoundException") {
		return nil, fmt.Errorf("after its end: %w", err)
	}
	return created.ID, nil
}

func (w *world) runnerGroups(ctx context.Context) (any, error) {
	group, err := w.client.GetRunnerGroupByName(ctx, "Default")
	if err != nil || group.ID != 1 || !group.IsDefault {
		return nil, fmt.Errorf("the default group: %+v, %w", group, err)
	}
	_, err = w.client.GetRunnerGroupByName(ctx, "no such group")
	return group.ID, expect(err != nil, "an unknown group was found")
}

func (w *world) jit(ctx context.Context, name string, id int) (*scaleset.RunnerScaleSetJitRunnerConfig, error) {
	return w.client.GenerateJitRunnerConfig(ctx, &scaleset.RunnerScaleSetJitRunnerSetting{Name: name, WorkFolder: ""}, id)
}

func (w *world) runners(ctx context.Context) (any, error) {
	set, err := w.newScaleSet(ctx, "runners")
	if err != nil {
		return nil, err
	}
	config, err := w.jit(ctx, "runner-1", set.ID)
	if err != nil {
		return nil, err
	}
	if err := expect(config.EncodedJITConfig != "" && config.Runner.Name == "runner-1" &&
		config.Runner.RunnerScaleSetID == set.ID, "JIT configuration for %+v", config.Runner); err != nil {
		return nil, err
	}
	_, err = w.jit(ctx, "runner-1", set.ID)
	if !errors.Is(err, scaleset.RunnerExistsError) {
		return nil, fmt.Errorf("the same name again: %w", err)
	}
	byName, err := w.client.GetRunnerByName(ctx, "runner-1")
	if err != nil || byName == nil || byName.ID != config.Runner.ID {
		return nil, fmt.Errorf("by name: %+v, %w", byName, err)
	}
	if byID, err := w.client.GetRunner(ctx, config.Runner.ID); err != nil || byID.Name != "runner-1" {
		return nil, fmt.Errorf("by id: %+v, %w", byID, err)
	}
	if err := w.client.RemoveRunner(ctx, int64(config.Runner.ID)); err != nil {
		return nil, err
	}
	if err := w.client.RemoveRunner(ctx, int64(config.Runner.ID)); !errors.Is(err, scaleset.RunnerNotFoundError) {
		return nil, fmt.Errorf("removed twice: %w", err)
	}
	if _, err := w.client.GetRunner(ctx, config.Runner.ID); !errors.Is(err, scaleset.RunnerNotFoundError) {
		return nil, fmt.Errorf("after its end: %w", err)
	}
	gone, err := w.client.GetRunnerByName(ctx, "runner-1")
	return config.Runner.ID, errors.Join(err, expect(gone == nil, "by name after its end: %+v", gone))
}

func (w *world) jobStillRunning(ctx context.Context) (any, error) {
	set, err := w.newScaleSet(ctx, "busy")
	if err != nil {
		return nil, err
	}
	config, err := w.jit(ctx, "busy-1", set.ID)
	if err != nil {
		return nil, err
	}
	fault := map[string]any{"kind": "busy_runner"}
	if err := w.administer(ctx, "POST", "/_simulator/faults", fault, nil); err != nil {
		return nil, err
	}
	err = w.client.RemoveRunner(ctx, int64(config.Runner.ID))
	if !errors.Is(err, scaleset.JobStillRunningError) {
		return nil, fmt.Errorf("removing a busy runner: %w", err)
	}
	return err.Error(), w.client.RemoveRunner(ctx, int64(config.Runner.ID))
}

func (w *world) sessionConflict(ctx context.Context) (any, error) {
	set, err := w.newScaleSet(ctx, "conflict")
	if err != nil {
		return nil, err
	}
	first, err := w.client.MessageSessionClient(ctx, set.ID, "host-a")
	if err != nil {
		return nil, err
	}
	_, err = w.client.MessageSessionClient(ctx, set.ID, "host-b")
	if !contains(err, "RunnerScaleSetSessionConflictException") {
		return nil, fmt.Errorf("a second session: %w", err)
	}
	if err := first.Close(ctx); err != nil {
		return nil, err
	}
	second, err := w.client.MessageSessionClient(ctx, set.ID, "host-b")
	if err != nil {
		return nil, err
	}
	return second.Session().OwnerName, second.Close(ctx)
}

func (w *world) sessionRefresh(ctx context.Context) (any, error) {
	set, err := w.newScaleSet(ctx, "refresh")
	if err != nil {
		return nil, err
	}
	session, err := w.client.MessageSessionClient(ctx, set.ID, "host")
	if err != nil {
		return nil, err
	}
	before := session.Session().MessageQueueAccessToken
	fault := map[string]any{"kind": "expired_token", "operation": "messages.get"}
	if err := w.administer(ctx, "POST", "/_simulator/faults", fault, nil); err != nil {
		return nil, err
	}
	if err := w.queue(ctx, "refresh", 1); err != nil {
		return nil, err
	}
	message, err := session.GetMessage(ctx, 0, 1)
	if err != nil || message == nil {
		return nil, fmt.Errorf("a poll with an expired token: %v, %w", message, err)
	}
	if err := expect(before != session.Session().MessageQueueAccessToken, "the token is still the old one"); err != nil {
		return nil, err
	}
	if err := session.DeleteMessage(ctx, message.MessageID); err != nil {
		return nil, err
	}
	return message.MessageID, session.Close(ctx)
}

func (w *world) sessionEviction(ctx context.Context) (any, error) {
	set, err := w.newScaleSet(ctx, "eviction")
	if err != nil {
		return nil, err
	}
	session, err := w.client.MessageSessionClient(ctx, set.ID, "host")
	if err != nil {
		return nil, err
	}
	evict := fmt.Sprintf("/_simulator/scale-sets/%d/evict-session", set.ID)
	if err := w.administer(ctx, "POST", evict, nil, nil); err != nil {
		return nil, err
	}
	_, err = session.GetMessage(ctx, 0, 1)
	if !contains(err, "404") {
		return nil, fmt.Errorf("a poll of an evicted session: %w", err)
	}
	text := err.Error()
	again, err := w.client.MessageSessionClient(ctx, set.ID, "host")
	if err != nil {
		return nil, err
	}
	return text, again.Close(ctx)
}

func (w *world) rateLimit(ctx context.Context) (any, error) {
	fault := map[string]any{
		"kind": "status", "operation": "groups.list", "status": 429, "retry_after": 1, "times": 2,
	}
	if err := w.administer(ctx, "POST", "/_simulator/faults", fault, nil); err != nil {
		return nil, err
	}
	started := time.Now()
	_, err := w.client.GetRunnerGroupByName(ctx, "default")
	waited := time.Since(started)
	return waited.Seconds(), errors.Join(err, expect(waited >= 2*time.Second, "waited %s only", waited))
}
