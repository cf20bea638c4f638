package telegram

import (
	"strings"

	"github.com/go-telegram/bot"
)

// escape makes a plain text one of MarkdownV2 that reads the same. What stands in back-quotes becomes code, which a
// touch copies. A text may have been cut anywhere, so a back-quote without a second one is just that.
func escape(text string) string {
	var b strings.Builder
	for {
		plain, rest, opened := strings.Cut(text, "`")
		code, after, closed := strings.Cut(rest, "`")
		if !opened || !closed {
			b.WriteString(escapePlain(text))
			return b.String()
		}
		b.WriteString(escapePlain(plain))
		b.WriteString("`" + strings.ReplaceAll(code, `\`, `\\`) + "`")
		text = after
	}
}

// escapePlain escapes the backslash too, which the library takes for an escape of the caller's.
func escapePlain(text string) string {
	return bot.EscapeMarkdown(strings.ReplaceAll(text, `\`, `\\`))
}
