#include "tools/worker/terminal_text.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(TerminalText, LeavesTextAsItIs) {
  for (const char* text : {"", "plain\ttext\n", "Grüße, 世界 🦜", "\xF4\x8F\xBF\xBF"}) EXPECT_EQ(terminal_text(text), text);
}

TEST(TerminalText, ReplacesWhatIsNoUtf8) {
  const std::string no = "\uFFFD";
  EXPECT_EQ(terminal_text("a\xFFz"), "a" + no + "z");
  EXPECT_EQ(terminal_text("a\xE4\xB8z"), "a" + no + "z") << "a character that breaks off";
  EXPECT_EQ(terminal_text("\xE4\xB8"), no);
  EXPECT_EQ(terminal_text("\x80"), no);
  EXPECT_EQ(terminal_text("\xC0\xAF"), no + no) << "longer than it need be";
  EXPECT_EQ(terminal_text("\xED\xA0\x80"), no + no + no) << "half of a surrogate pair";
  EXPECT_EQ(terminal_text("\xF4\x90\x80\x80"), no + no + no + no) << "beyond U+10FFFF";
}

TEST(TerminalText, ReplacesWhatWouldSteerATerminal) {
  const std::string no = "\uFFFD";
  EXPECT_EQ(terminal_text("\x1B[2J"), no + "[2J");
  EXPECT_EQ(terminal_text("back\rspace\b\x7F"), "back" + no + "space" + no + no);
  EXPECT_EQ(terminal_text("\xC2\x9B"
                          "2J"),
            no + no + "2J")
      << "the same as ESC [, as one character";
  EXPECT_EQ(terminal_text(std::string_view("\0", 1)), no);
}

}  // namespace
}  // namespace troupe
