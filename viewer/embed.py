"""embed.py OUTPUT [PAGE]: the page as a C source, for the library to have it wherever it is installed. Without a page: none."""

import sys


def main() -> None:
    output, *pages = sys.argv[1:]
    data = b""
    if pages:
        with open(pages[0], "rb") as file:
            data = file.read()
    lines = ['#include "formats/html_report.h"', "", f"const size_t sp_viewer_page_size = {len(data)};"]
    lines.append("const unsigned char sp_viewer_page[] = {")
    numbers = [str(byte) for byte in data] or ["0"]
    lines += [",".join(numbers[i : i + 32]) + "," for i in range(0, len(numbers), 32)]
    lines.append("};")
    with open(output, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
