package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// screen prints one line per stage. On a terminal the lines of stages that run at once are drawn again as they move on;
// elsewhere each is printed once, at its end.
type screen struct {
	out  io.Writer
	live bool

	mu    sync.Mutex
	rows  []*stage // drawn, and not all ended
	drawn int      // lines on the terminal that belong to rows
	last  time.Time
}

// stage is a line of the screen.
type stage struct {
	screen      *screen
	name        string
	text        string
	done, total int64 // a bar is drawn when total is not 0
	began       time.Time
	took        time.Duration // once it has ended
	ended       bool
}

const (
	nameWidth = 10
	barWidth  = 24
	textWidth = 62
	redrawGap = 80 * time.Millisecond
)

// stage begins one.
func (s *screen) stage(name, text string) *stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &stage{screen: s, name: name, text: text, began: time.Now()}
	s.rows = append(s.rows, g)
	s.redraw(true)
	return g
}

// move draws a bar.
func (g *stage) move(done, total int64, text string) {
	g.screen.mu.Lock()
	defer g.screen.mu.Unlock()
	if g.ended {
		return
	}
	g.done, g.total, g.text = done, total, text
	g.screen.redraw(false)
}

// say changes the text.
func (g *stage) say(text string) {
	g.screen.mu.Lock()
	defer g.screen.mu.Unlock()
	g.text = text
	g.screen.redraw(false)
}

// end is said once; text replaces what was there.
func (g *stage) end(text string) {
	s := g.screen
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.ended {
		return
	}
	g.text, g.took, g.ended = text, time.Since(g.began), true
	s.redraw(true)
	if !s.live {
		fmt.Fprintln(s.out, g.line())
	}
	for _, row := range s.rows {
		if !row.ended {
			return
		}
	}
	s.rows, s.drawn = nil, 0 // the lines stay as they are
}

func (s *screen) redraw(now bool) {
	if !s.live || !now && time.Since(s.last) < redrawGap {
		return
	}
	s.last = time.Now()
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	for _, g := range s.rows {
		b.WriteString("\r" + g.line() + "\x1b[K\n")
	}
	s.drawn = len(s.rows)
	io.WriteString(s.out, b.String())
}

func (g *stage) line() string {
	text := g.text
	if g.total > 0 {
		full := int(min(g.done, g.total) * barWidth / g.total)
		text = "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "] " + text
	}
	line := "  " + pad(g.name, nameWidth) + " " + text
	if g.ended {
		line = pad(line, 3+nameWidth+textWidth) + fmt.Sprintf("%5.1f s", g.took.Seconds())
	}
	return strings.TrimRight(line, " ")
}

// pad fills up to width code points.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// number groups digits: 336,776.
func number[T int | int64 | uint64](n T) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// note changes the text, and prints it at once where lines are not drawn again: what follows takes long.
func (g *stage) note(text string) {
	g.say(text)
	if !g.screen.live {
		fmt.Fprintf(g.screen.out, "  %s %s\n", pad(g.name, nameWidth), text)
	}
}
