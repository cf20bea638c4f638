package outcome

import (
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // programs name zones, and a small container knows none
)

const (
	// soonest and latest bound what is believed of the end of a limit.
	soonest = time.Minute
	latest  = 8 * 24 * time.Hour

	// justNow is how long a time of day that has passed is taken for one of today: a limit that ended a moment ago must not
	// hold the agent up until tomorrow.
	justNow = 15 * time.Minute
	// longest bounds durations, so that sums of them don't overflow.
	longest = 400 * 24 * time.Hour
)

// bounded makes the time until an agent pauses one that can be lived with.
func bounded(j Judgement, now time.Time) time.Time {
	switch {
	case !j.Outcome.UntilReset() || j.ResetAt.IsZero():
		return time.Time{}
	case j.ResetAt.Before(now.Add(soonest)):
		return now.Add(soonest)
	case j.ResetAt.After(now.Add(latest)):
		return now.Add(latest)
	default:
		return j.ResetAt
	}
}

// ResetTime finds the time in a text at which a limit ends, as agent programs and providers write it. now is when it was
// said, tz the zone of times that name none. A time of the day without seconds is the end of its minute: the program has
// left the seconds out, and to start before they are over is to be refused again.
func ResetTime(text string, now time.Time, tz *time.Location) (time.Time, bool) {
	for _, read := range []func(string, time.Time, *time.Location) (time.Time, bool){
		epochTime, headerTime, relativeTime, fullTime, dayTime, clockTime,
	} {
		if at, ok := read(text, now, tz); ok {
			return at, true
		}
	}
	return time.Time{}, false
}

// find answers the groups of the first match.
func find(pattern, text string) ([]string, bool) {
	groups := regexp.MustCompile(`(?i)` + pattern).FindStringSubmatch(text)
	return groups, groups != nil
}

// epochTime reads seconds since 1970: "resets_at":1777936568, and what claude once wrote: limit reached|1750000000.
func epochTime(text string, _ time.Time, _ *time.Location) (time.Time, bool) {
	groups, ok := find(`(?:resets?_?at"?\s*[:=]\s*"?|\|)(\d{10,13})\b`, text)
	if !ok {
		return time.Time{}, false
	}
	const milliseconds = 13
	value, err := strconv.ParseInt(groups[1], 10, 64)
	switch {
	case err != nil:
		return time.Time{}, false
	case len(groups[1]) == milliseconds:
		return time.UnixMilli(value), true
	default:
		return time.Unix(value, 0), len(groups[1]) == len("1777936568")
	}
}

// headerTime reads what was meant for programs: retry-after in seconds, milliseconds or as a date, resets_in_seconds.
func headerTime(text string, now time.Time, _ *time.Location) (time.Time, bool) {
	if groups, ok := find(`(retry-after-ms|retry-after|resets_in_seconds)"?\s*[:=]\s*"?(\d+(?:\.\d+)?)`, text); ok {
		unit := "s"
		if strings.HasSuffix(strings.ToLower(groups[1]), "-ms") {
			unit = "ms"
		}
		return now.Add(amount(groups[2], unit)), true
	}
	if groups, ok := find(`retry-after"?\s*[:=]\s*"?(\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT)`, text); ok {
		at, err := time.Parse(time.RFC1123, groups[1])
		return at, err == nil
	}
	return time.Time{}, false
}

// relativeTime reads "retry in 34.07s", "Retrying in 2892 seconds", "try again in 1h 5m", "resets in 2 days and 3 hours".
func relativeTime(text string, now time.Time, _ *time.Location) (time.Time, bool) {
	const one = `(\d+(?:\.\d+)?)\s*(milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|hr|h|days?|d)\b?`
	groups, ok := find(`(?:retry|retrying|again|resets?|reset|available)(?: again)? (?:in|after)\s+((?:`+one+`(?:,? and |, ?| )?)+)`, text)
	if !ok {
		return time.Time{}, false
	}
	var sum time.Duration
	for _, part := range regexp.MustCompile(`(?i)`+one).FindAllStringSubmatch(groups[1], -1) {
		sum = min(sum+amount(part[1], part[2]), longest)
	}
	return now.Add(sum), true
}

// amount is a duration as long as it is written, but not too long.
func amount(value, unit string) time.Duration {
	number, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return longest // too many digits
	}
	size := time.Second
	switch unit = strings.ToLower(unit); {
	case strings.HasPrefix(unit, "ms"), strings.HasPrefix(unit, "milli"):
		size = time.Millisecond
	case strings.HasPrefix(unit, "m"):
		size = time.Minute
	case strings.HasPrefix(unit, "h"):
		size = time.Hour
	case strings.HasPrefix(unit, "d"):
		size = 24 * time.Hour
	}
	if number > float64(longest/size) {
		return longest
	}
	return time.Duration(number * float64(size))
}

// Words before a time at which a limit ends, and a zone after it.
const (
	until = `(?:resets?|again|available|until|retry)(?: at| on| after)?:? `
	zone  = `(?:\s*\(?([a-z]+/[a-z_]+(?:/[a-z_]+)?|UTC|GMT|Z)\b)?`
	clock = `(\d{1,2})(?::(\d\d))?(?::(\d\d))?\s*(am|pm)?`
)

// fullTime reads "will reset at 2026-06-22 13:59:38", which is UTC unless it says otherwise, and RFC 3339.
func fullTime(text string, _ time.Time, _ *time.Location) (time.Time, bool) {
	groups, ok := find(until+`(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(?:\.\d+)?\s*([+-]\d\d:\d\d)?`, text)
	if !ok {
		return time.Time{}, false
	}
	offset := "Z"
	if groups[4] != "" {
		offset = groups[4]
	}
	if groups[3] == "" {
		groups[3] = ":00"
	}
	at, err := time.Parse(time.RFC3339, groups[1]+"T"+groups[2]+groups[3]+offset)
	return at, err == nil
}

// dayTime reads "resets Apr 23 at 4pm (America/Recife)" and "try again at Apr 28th, 2026 10:03 PM".
func dayTime(text string, now time.Time, tz *time.Location) (time.Time, bool) {
	groups, ok := find(until+`(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* (\d{1,2})(?:st|nd|rd|th)?(?:,? (\d{4}))?,?(?: at)? `+
		clock+zone, text)
	if !ok {
		return time.Time{}, false
	}
	first, err := time.Parse("Jan", strings.ToUpper(groups[1][:1])+strings.ToLower(groups[1][1:3]))
	hour, minute, known := hourOf(groups[4], groups[5], groups[7])
	day := number(groups[2])
	if err != nil || !known || day < 1 || day > 31 {
		return time.Time{}, false
	}
	tz = zoneOf(groups[8], tz)
	now = now.In(tz)
	at := func(year int) time.Time { return time.Date(year, first.Month(), day, hour, minute+1, 0, 0, tz) }
	if groups[3] != "" {
		year, err := strconv.Atoi(groups[3])
		return at(year), err == nil
	}
	const half = 182 * 24 * time.Hour
	switch this := at(now.Year()); {
	case this.Sub(now) > half:
		return at(now.Year() - 1), true
	case now.Sub(this) > half:
		return at(now.Year() + 1), true
	default:
		return this, true
	}
}

// clockTime reads "resets 8:30am (America/Los_Angeles)", "try again at 5:26 PM" and "resets at 17:26".
func clockTime(text string, now time.Time, tz *time.Location) (time.Time, bool) {
	groups, ok := find(until+clock+zone, text)
	if !ok || groups[2] == "" && groups[4] == "" {
		return time.Time{}, false // just a number
	}
	hour, minute, known := hourOf(groups[1], groups[2], groups[4])
	if !known {
		return time.Time{}, false
	}
	now = now.In(zoneOf(groups[5], tz))
	at := func(days int) time.Time {
		return time.Date(now.Year(), now.Month(), now.Day()+days, hour, minute+1, 0, 0, now.Location())
	}
	switch late := now.Sub(at(0)); {
	case late > justNow:
		return at(1), true
	case late < justNow-24*time.Hour: // five to midnight, read shortly after
		return at(-1), true
	default:
		return at(0), true
	}
}

// hourOf reads a time of the day.
func hourOf(hours, minutes, half string) (hour, minute int, ok bool) {
	hour, minute = number(hours), max(number(minutes), 0)
	const noon = 12
	if half != "" {
		if hour < 1 || hour > noon {
			return 0, 0, false
		}
		hour %= noon
		if strings.EqualFold(half, "pm") {
			hour += noon
		}
	}
	return hour, minute, hour >= 0 && hour < 24 && minute < 60
}

// zoneOf is the zone called name, else the other.
func zoneOf(name string, other *time.Location) *time.Location {
	switch {
	case name == "":
		return other
	case len(name) <= len("UTC"):
		return time.UTC
	}
	if zone, err := time.LoadLocation(name); err == nil {
		return zone
	}
	return other
}
