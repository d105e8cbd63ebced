!> Regions of MPI programs in Fortran: one file for all ranks. Everything else is in module scope_profiler.
!!
!!     use mpi_f08
!!     use scope_profiler
!!     use scope_profiler_mpi
!!     call MPI_Init()
!!     call sp_mpi_init("profile", MPI_COMM_WORLD%MPI_VAL)   ! with `use mpi`: MPI_COMM_WORLD
!!     solve = sp_region("solve")
!!     ...
!!     call sp_mpi_finalize()                                ! writes profile.h5, on all ranks together
!!     call MPI_Finalize()
!!
!! Compile it after scope_profiler.f90, and link with -lscope_profiler_openmpi or -lscope_profiler_mpich, and -lscope_profiler.
module scope_profiler_mpi
   use, intrinsic :: iso_c_binding, only: c_associated, c_char, c_double, c_f_pointer, c_int, c_null_char, c_ptr
   use, intrinsic :: iso_fortran_env, only: error_unit
   implicit none
   private

   public :: sp_mpi_init, sp_mpi_finalize, sp_mpi_set_timeout

   interface
      function c_init(prefix, comm) bind(c, name="sp_mpi_init_f") result(status)
         import :: c_char, c_int
         character(kind=c_char), intent(in) :: prefix(*)
         integer(c_int), value :: comm
         integer(c_int) :: status
      end function c_init

      function c_finalize() bind(c, name="sp_mpi_finalize") result(status)
         import :: c_int
         integer(c_int) :: status
      end function c_finalize

      function c_set_timeout(seconds) bind(c, name="sp_mpi_set_timeout") result(status)
         import :: c_double, c_int
         real(c_double), value :: seconds
         integer(c_int) :: status
      end function c_set_timeout

      function c_default_profiler() bind(c, name="sp_default_profiler") result(profiler)
         import :: c_ptr
         type(c_ptr) :: profiler
      end function c_default_profiler

      function c_error_message(profiler) bind(c, name="sp_profiler_error_message") result(text)
         import :: c_ptr
         type(c_ptr), value :: profiler
         type(c_ptr) :: text
      end function c_error_message

      function c_error_string(status) bind(c, name="sp_error_string") result(text)
         import :: c_int, c_ptr
         integer(c_int), value :: status
         type(c_ptr) :: text
      end function c_error_string
   end interface

contains

   !> Start recording on this rank of `comm`, after MPI_Init. `comm` must be there until sp_mpi_finalize.
   subroutine sp_mpi_init(prefix, comm, stat, errmsg)
      character(len=*), intent(in) :: prefix
      integer, intent(in) :: comm
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg

      call tell(c_init(trim(prefix) // c_null_char, int(comm, c_int)), "sp_mpi_init", stat, errmsg)
   end subroutine sp_mpi_init

   !> Write the file of all ranks, and stop. Collective. An error of any rank is one on every rank, and names the rank.
   subroutine sp_mpi_finalize(stat, errmsg)
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg

      call tell(c_finalize(), "sp_mpi_finalize", stat, errmsg)
   end subroutine sp_mpi_finalize

   !> How long to wait for another rank, in seconds.
   subroutine sp_mpi_set_timeout(seconds, stat, errmsg)
      double precision, intent(in) :: seconds
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg

      call tell(c_set_timeout(real(seconds, c_double)), "sp_mpi_set_timeout", stat, errmsg)
   end subroutine sp_mpi_set_timeout

   !> A status of the C functions, with what there is to say about it: on the error unit where neither is asked for.
   subroutine tell(status, what, stat, errmsg)
      integer(c_int), intent(in) :: status
      character(len=*), intent(in) :: what
      integer, intent(out), optional :: stat
      character(len=*), intent(out), optional :: errmsg
      character(len=:), allocatable :: message

      message = ""
      if (status /= 0) then
         message = text_of(c_error_message(c_default_profiler()))
         if (len(message) == 0) message = text_of(c_error_string(status))
         message = what // ": " // message
      end if
      if (present(stat)) stat = status
      if (present(errmsg)) errmsg = message
      if (status == 0 .or. present(stat) .or. present(errmsg)) return
      write (error_unit, "(2a)") "scope_profiler: ", message
   end subroutine tell

   function text_of(text) result(copy)
      type(c_ptr), intent(in) :: text
      character(len=:), allocatable :: copy
      character(kind=c_char), pointer :: letters(:)
      integer :: length, i

      copy = ""
      if (.not. c_associated(text)) return
      call c_f_pointer(text, letters, [1000])
      do length = 0, 998
         if (letters(length + 1) == c_null_char) exit
      end do
      copy = repeat(" ", length)
      do i = 1, length
         copy(i:i) = letters(i)
      end do
   end function text_of

end module scope_profiler_mpi
