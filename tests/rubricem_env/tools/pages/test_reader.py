"""A PDF that cannot be read says why, and its process reads the next one."""

import io

import pytest
from pypdf import PdfWriter

from rubricem_env.tools.pages.reader import PageReader, Unreadable


def pdf(password: str = "") -> bytes:
    writer = PdfWriter()
    writer.add_blank_page(width=72, height=72)
    writer.add_metadata({"/Title": "A sheet"})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def test_a_locked_or_damaged_pdf_says_so_and_the_next_one_is_read():
    reader = PageReader(processes=1)
    try:
        with pytest.raises(Unreadable, match=r"^the PDF is locked with a password; save a copy without one$"):
            reader.read_now(pdf("secret"), "pdf")
        with pytest.raises(Unreadable, match=r"^the PDF is damaged \(.+\); open it and save it anew$"):
            reader.read_now(b"%PDF-1.7\nnothing else", "pdf")
        first = reader._processes._idle[0].pid
        assert reader.read_now(pdf(), "pdf")[0] == "A sheet"
        assert reader._processes._idle[0].pid == first
    finally:
        reader.close()
